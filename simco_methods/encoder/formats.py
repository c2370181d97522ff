"""The formats that an encoder is exported to: how each is written, read again and loaded."""

from __future__ import annotations

import importlib.util
import inspect
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from simco_methods.encoder import solo_learn
from simco_methods.encoder.encoder import Encoder
from simco_methods.encoder.naming import built

Network = Callable[[Tensor], Tensor]


@dataclass
class Export:
    """What is exported.

    Attributes:
        encoder: on the CPU, in evaluation mode.
        facts: of the card.
        naming: of the weights, "torchvision" or "timm".
        lines: that build the network there.
    """

    encoder: Encoder
    facts: dict[str, Any]
    naming: str | None = None
    lines: list[str] = field(default_factory=list)

    def images(self, count: int) -> Tensor:
        """Random images as the network gets them, always the same."""
        size = self.encoder.card.preprocessing.size
        return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))

    def weights(self) -> dict[str, Tensor]:
        """Of the network, each with memory of its own."""
        state = self.encoder.backbone.state_dict()
        return {key: value.detach().clone().contiguous() for key, value in state.items()}


class Format:
    """A format.

    Attributes:
        ending: of its files.
        tolerance: the largest difference of features, as a share of the largest feature.
        plain: whether it holds weights by the names of a library.
    """

    ending: ClassVar[str]
    tolerance: ClassVar[float] = 1e-6
    plain: ClassVar[bool] = False

    def check(self, encoder: Encoder | None = None) -> None:
        """Refuses what cannot be written here.

        Raises:
            ImportError: a package that is not installed.
            ValueError: a network that the format is not for.
        """

    def write(self, export: Export, path: Path) -> None:
        """Writes the file, or the files of a folder."""
        raise NotImplementedError

    def read(self, export: Export, path: Path) -> Network | None:
        """What was written as a network; None if that takes a package that is not installed."""
        raise NotImplementedError

    def load(self, export: Export, name: str) -> list[str]:
        """The lines that a user loads a file of that name with."""
        raise NotImplementedError


class Safetensors(Format):
    """Weights, with the card within."""

    ending, plain = ".safetensors", True

    def write(self, export: Export, path: Path) -> None:
        card = {**export.facts, "naming": export.naming, "load": self.load(export, path.name)}
        metadata = {"format": "pt", "simco_methods": json.dumps(card)}
        path.write_bytes(save(export.weights(), metadata))  # save_file lets nobody else read it

    def read(self, export: Export, path: Path) -> Network:
        return built(export.lines, load_file(path))

    def load(self, export: Export, name: str) -> list[str]:
        weights = f"load_file({_spelt(name)})"
        return _loaded(export, "from safetensors.torch import load_file", weights)


class Pth(Format):
    """Weights, as ``torch.save`` writes them."""

    ending, plain = ".pth", True

    def write(self, export: Export, path: Path) -> None:
        torch.save(export.weights(), path)

    def read(self, export: Export, path: Path) -> Network:
        return built(export.lines, torch.load(path, weights_only=True))

    def load(self, export: Export, name: str) -> list[str]:
        return _loaded(export, "import torch", f"torch.load({_spelt(name)}, weights_only=True)")


class TorchScript(Format):
    """A program, traced."""

    ending, tolerance = ".torchscript", 1e-5

    def write(self, export: Export, path: Path) -> None:
        torch.jit.trace(export.encoder.backbone, export.images(2)).save(str(path))

    def read(self, export: Export, path: Path) -> Network:
        return torch.jit.load(str(path))

    def load(self, export: Export, name: str) -> list[str]:
        return ["import torch", f"model = torch.jit.load({_spelt(name)})"]


class Exported(Format):
    """A program of ``torch.export``, for any number of images."""

    ending, tolerance = ".pt2", 1e-5

    def check(self, encoder: Encoder | None = None) -> None:
        if not hasattr(torch.export, "Dim"):
            raise ImportError("format=pt2 needs torch 2.2 or later")

    def write(self, export: Export, path: Path) -> None:
        images, shapes = (export.images(2),), ({0: torch.export.Dim("batch")},)
        program = torch.export.export(export.encoder.backbone, images, dynamic_shapes=shapes)
        torch.export.save(program, path)

    def read(self, export: Export, path: Path) -> Network:
        return torch.export.load(path).module()

    def load(self, export: Export, name: str) -> list[str]:
        return ["import torch", f"model = torch.export.load({_spelt(name)}).module()"]


class Onnx(Format):
    """A program for other runtimes, for any number of images."""

    ending, tolerance = ".onnx", 1e-4

    def check(self, encoder: Encoder | None = None) -> None:
        for package in ("onnx", "onnxscript"):
            if importlib.util.find_spec(package) is None:
                raise ImportError(f"format=onnx needs {package}: pip install 'simco-methods[onnx]'")

    def write(self, export: Export, path: Path) -> None:
        network, images = export.encoder.backbone, (export.images(2),)
        names = {"input_names": ["images"], "output_names": ["features"]}
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            shapes = ({0: torch.export.Dim("batch")},)
            program = torch.onnx.export(
                network, images, dynamo=True, verbose=False, dynamic_shapes=shapes, **names
            )
            program.save(str(path))
        else:  # before torch 2.5
            axes = {name: {0: "batch"} for name in ("images", "features")}
            torch.onnx.export(network, images, str(path), dynamic_axes=axes, **names)

    def read(self, export: Export, path: Path) -> Network | None:
        if importlib.util.find_spec("onnxruntime") is None:
            return None
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])

    def load(self, export: Export, name: str) -> list[str]:
        return [
            "import onnxruntime",
            f"session = onnxruntime.InferenceSession({_spelt(name)})",
            'features = session.run(None, {"images": images})[0]  # float32, normalised',
        ]


class SoloLearn(Format):
    """A folder for solo-learn's scripts."""

    ending = ""

    def check(self, encoder: Encoder | None = None) -> None:
        if encoder is not None:
            solo_learn.check_name(encoder.card)

    def write(self, export: Export, path: Path) -> None:
        solo_learn.write(export.encoder, path)

    def read(self, export: Export, path: Path) -> nn.Module:
        return solo_learn.read(path)

    def load(self, export: Export, name: str) -> list[str]:
        card = export.encoder.card
        backbone = f"backbone.name={card.backbone}"
        for key, value in card.kwargs.items():
            said = json.dumps(value, separators=(",", ":"))
            backbone += " " + shlex.quote(f"+backbone.kwargs.{key}={said}")
        return [
            f"python main_linear.py --config-name cifar10/linear {backbone} "
            f"pretrained_feature_extractor={name}/{solo_learn.CHECKPOINT}",
            "python -m simco_methods.solo_learn main_knn.py --feature_type backbone "
            f"--pretrained_checkpoint_dir {name} ...",
        ]


def _spelt(name: str) -> str:
    """A file's name in Python."""
    return json.dumps(name, ensure_ascii=False)


def _loaded(export: Export, needed: str, weights: str) -> list[str]:
    imports = [line for line in export.lines if line.startswith(("import", "from"))]
    rest = [line for line in export.lines if line not in imports]
    return [
        *sorted({needed, *imports}, reverse=True),
        *rest,
        f"model.load_state_dict({weights})",
        "model.eval()",
    ]


FORMATS: dict[str, Format] = {
    "safetensors": Safetensors(),
    "pth": Pth(),
    "onnx": Onnx(),
    "torchscript": TorchScript(),
    "pt2": Exported(),
    "solo-learn": SoloLearn(),
}
