"""How an encoder's network is built in plain torchvision or timm, as lines of Python."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

import timm
import torchvision
from torch import Tensor, nn

from simco_methods.backbones import MICRO_RESNET
from simco_methods.config.walk import reason
from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder
from simco_methods.encoder.loading import TORCHVISION, classifier_of
from simco_methods.host.builtin.backbones import TIMM_NAMES

# Of the backbones that are torchvision's with another stem, and those themselves.
_RESNETS = {
    name: name.removesuffix("_small")
    for name in ("resnet18", "resnet50", "resnet18_small", "resnet50_small")
}
# What torchvision and timm have by the same names with the same names of weights.
_ALIKE = ("resnet", "resnext", "wide_resnet")


def default_naming(card: Card) -> str:
    """The library that the network is from."""
    from_torchvision = card.backbone in _RESNETS or card.backbone.startswith(TORCHVISION)
    return "torchvision" if from_torchvision else "timm"


def plain_lines(encoder: Encoder, naming: str) -> list[str]:
    """Lines that make ``model``, the encoder's network without its weights and without this pack.

    They have been run: a model of theirs takes the encoder's weights strictly.

    Args:
        encoder: on the CPU.
        naming: one of :data:`simco_methods.options.NAMINGS`.

    Raises:
        ValueError: a network that is not in that library, or another one there.
    """
    name = encoder.card.backbone
    lines = _lines(encoder, naming)
    try:
        built(lines, encoder.backbone.state_dict())
    except Exception as error:  # whatever another library raises
        raise ValueError(
            f"naming={naming}: {naming}'s {name} is another network ({reason(error)})"
        ) from error
    return lines


def built(lines: list[str], weights: Mapping[str, Tensor]) -> nn.Module:
    """The model that lines of :func:`plain_lines` make, with weights, in evaluation mode.

    Raises:
        RuntimeError: weights that are not all of it.
    """
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)  # the very lines that a user is told
    made["model"].load_state_dict(weights)
    return made["model"].eval()


def transform_lines(card: Card) -> list[str]:
    """Lines that make ``transform``, from a Pillow image to what the network sees of it."""
    seen = card.preprocessing
    return [
        "import numpy as np",
        "from PIL import Image, ImageOps",
        "from torchvision import transforms as T",
        "",
        "def to_rgb(image):  # upright, 8 bits",
        "    ImageOps.exif_transpose(image, in_place=True)",
        '    if image.mode[:4] == "I;16" or image.mode == "I" and image.format in ("PNG", "PPM"):',
        '        tags = getattr(image, "tag_v2", {})  # TIFF: bits, and whether white is 0',
        '        grey = (np.asarray(image) >> tags.get(258, [16])[0] - 8).astype("uint8")',
        "        image = Image.fromarray(255 - grey if tags.get(262) == 0 else grey)",
        '    if image.mode in ("I", "F"):',
        '        raise ValueError(f"mode {image.mode}: scale the image to 8 bits first")',
        '    return image.convert("RGB")',
        "",
        "transform = T.Compose([",
        "    T.Lambda(to_rgb),",
        f"    T.Resize({seen.resize}, T.InterpolationMode.BICUBIC), T.CenterCrop({seen.size}),",
        f"    T.ToTensor(), T.Normalize({list(seen.mean)}, {list(seen.std)}),",
        "])",
    ]


def _lines(encoder: Encoder, naming: str) -> list[str]:
    card = encoder.card
    name, kwargs = card.backbone, dict(card.kwargs)
    if name == "micro_resnet":
        if naming != "timm":
            raise ValueError(f"naming={naming}: {name} is made of timm's parts; set naming=timm")
        width = encoder.backbone.conv1.out_channels
        return [
            "import torch",
            "from timm.models.resnet import BasicBlock, ResNet",
            f"model = ResNet(BasicBlock, {_arguments({**MICRO_RESNET, **kwargs})})",
            f"model.conv1 = torch.nn.Conv2d(3, {width}, kernel_size=3, padding=1, bias=False)",
        ]
    own = default_naming(card)
    padding = 2 if card.small_stem else None
    if name != _RESNETS.get(name, name):
        padding = kwargs.pop("stem_padding", 2)
    own_name = name.removeprefix(TORCHVISION)
    plain = _RESNETS.get(name) or TIMM_NAMES.get(name) or own_name.split(".")[0]
    module = torchvision.models if naming == "torchvision" else timm.models
    if not callable(getattr(module, plain, None)):
        hint = f"set naming={own}" if naming != own else "only programs can be made of it"
        raise ValueError(f"naming={naming}: {naming} has no {name}; {hint}")
    if naming != own and not plain.startswith(_ALIKE):
        raise ValueError(
            f"naming={naming}: {naming}'s {name} has other names for its weights than {own}'s; set "
            f"naming={own}"
        )
    if naming != own and kwargs:
        raise ValueError(f"naming={naming}: backbone.kwargs={kwargs} are {own}'s; set naming={own}")
    if naming == "torchvision":
        head = _attribute(classifier_of(getattr(module, plain)(**kwargs)))
        lines = [
            "import torch",
            "import torchvision",
            f"model = torchvision.models.{plain}({_arguments(kwargs)})",
            f"model{head} = torch.nn.Identity()",
        ]
    else:
        lines = [
            *(["import torch"] if padding is not None else []),
            "import timm",
            f"model = timm.models.{plain}({_arguments({'num_classes': 0, **kwargs})})",
        ]
    if padding is not None:
        lines += [
            f"model.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, padding={padding}, bias=False)",
            "model.maxpool = torch.nn.Identity()",
        ]
    return lines


def _attribute(path: str) -> str:
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path.split("."))


def _arguments(kwargs: Mapping[str, Any]) -> str:
    odd = [key for key in kwargs if not str(key).isidentifier() or keyword.iskeyword(key)]
    if odd:
        raise ValueError(f"backbone.kwargs: {odd[0]!r} is no name of an argument")
    return ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
