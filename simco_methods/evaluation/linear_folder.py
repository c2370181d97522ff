"""The folder of one linear evaluation or finetuning: whose it is, whether it is finished."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from simco_methods.encoder import Encoder
from simco_methods.evaluation.linear import LinearResult
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import StateFile
from simco_methods.evaluation.sides import Sides
from simco_methods.files import rounded, whole, write_csv, write_json
from simco_methods.machine import hardware, versions
from simco_methods.measures import accuracies, in_percent

# Settings that change where and how fast, not what.
_ELSEWHERE = ("config", "prefix", "trusted", "device", "num_workers", "out", "size", "mean", "std")


class LinearFolder:
    """The files of one evaluation.

    Files:
        summary.json: accuracies, the chosen learning rate, what was evaluated on what; written when
            all else is there.
        results.csv: a row a learning rate and weight decay.
        history.csv: a row an epoch, of the chosen ones.
        per_class.csv, confusion.csv, confusion.png: of the test images.
        head.safetensors: the classifier, ``weight`` (C, F) and ``bias`` (C,); in finetune
            model.safetensors: ``backbone.*`` and ``head.*`` with the card, which ``load_encoder``
            reads.
        state.pt: of an unfinished training.

    Args:
        path: of the folder.
        encoder, sides, settings: what is evaluated; the settings completed.

    Raises:
        ValueError: a folder of another evaluation, with what differs, or of something else.
    """

    def __init__(self, path: Path, encoder: Encoder, sides: Sides, settings: LinearSettings):
        self.path, self.encoder, self.sides, self.settings = path, encoder, sides, settings
        self.identity = {
            **identity(encoder, settings),
            "dataset": sides.name,
            "train_images": sides.train.digest(),
            "test_images": sides.test.digest(),
        }
        self.state = StateFile(path / "state.pt", self.identity)
        self.finished = self._summary()
        there = self.state.read() if self.finished is None else self.finished
        if there is not None:
            check_identity(path, there.get("identity"), self.identity)

    def _summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from error
        return found if isinstance(found, dict) else {"identity": found}  # of something else

    def write(self, result: LinearResult, batch_size: int) -> dict[str, Any]:
        """Writes all files; returns the summary."""
        path, card, settings = self.path, self.encoder.card, self.settings
        path.mkdir(parents=True, exist_ok=True)
        kind = "finetune" if result.backbone is not None else "linear"
        [accuracy] = in_percent({f"{kind}_acc1": result.scores.acc1})
        title = f"{accuracy}, {self.sides.name}"
        result.scores.write(path, title)
        write_csv(path / "results.csv", result.rows)
        write_csv(path / "history.csv", result.history)
        self._write_weights(result)
        known = card.to_json()
        summary = {
            "mode": settings.mode,
            **result.scores.summary(),
            "chosen": {k: result.chosen[k] for k in ("lr", "effective_lr", "weight_decay")},
            "train_images": len(self.sides.train),
            "test_images": len(self.sides.test),
            "dataset": self.sides.name,
            "notes": list(self.sides.notes),
            "batch_size": batch_size,
            "seconds": result.seconds,
            "hardware": hardware(self.encoder.device, 1),
            "versions": versions(),
            "encoder": {k: v for k, v in known.items() if k not in ("format", "settings")},
        }
        # The identity is compared, to the last digit.
        summary = {**rounded(summary), "identity": self.identity}
        write_json(path / "summary.json", summary)
        self.state.path.unlink(missing_ok=True)
        return summary

    def _write_weights(self, result: LinearResult) -> None:
        classes = self.sides.classes
        if result.backbone is None:
            self._save(
                "head.safetensors", result.head.state_dict(), {"classes": json.dumps(classes)}
            )
            return
        card = dataclasses.replace(
            self.encoder.card,
            dataset=self.sides.name,
            classes=list(classes),
            accuracies=accuracies("finetune_", result.scores.acc1, result.scores.acc5),
            versions=versions(),
        )
        network = nn.ModuleDict({"backbone": result.backbone, "head": result.head})
        self._save(
            "model.safetensors", network.state_dict(), {"simco_methods": json.dumps(card.to_json())}
        )

    def _save(self, name: str, weights: dict[str, Tensor], metadata: dict[str, str]) -> None:
        tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
        with whole(self.path / name) as part:
            # save_file lets nobody else read it.
            part.write_bytes(safetensors.torch.save(tensors, metadata))


def identity(encoder: Encoder, settings: LinearSettings) -> dict[str, Any]:
    """What makes two evaluations the same beside their images, as plain values."""
    own = dataclasses.asdict(settings)
    seen = encoder.card.preprocessing
    return {
        **{key: value for key, value in own.items() if key not in _ELSEWHERE},
        "backbone": encoder.card.backbone,
        "encoder": encoder.digest(),
        "image_size": seen.size,
        "resize": seen.resize,
        "mean": list(seen.mean),
        "std": list(seen.std),
    }


def check_identity(path: Path, there: Any, here: dict[str, Any]) -> None:
    """Raises ``ValueError`` if a folder is of another evaluation, with what differs.

    Args:
        path: of the folder.
        there: the identity that its files have.
        here: that of this evaluation.
    """
    if not isinstance(there, dict):
        raise ValueError(f"{path} holds something else; set out=FOLDER")
    differ = [
        f"  {key}: {there.get(key)} there, {here.get(key)} here"
        for key in dict.fromkeys([*here, *there])
        if there.get(key) != here.get(key)
    ]
    if differ:
        raise ValueError(
            f"{path} is of another evaluation:\n" + "\n".join(differ) + "\n"
            "Set out=FOLDER for this one, or remove that folder"
        )
