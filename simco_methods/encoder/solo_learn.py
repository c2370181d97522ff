"""An encoder as a checkpoint that solo-learn's evaluation scripts take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn

from simco_methods.checkpoints import below, read_checkpoint
from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder
from simco_methods.files import write_json
from simco_methods.host import HOST, BaseMethod
from simco_methods.host.builtin.backbones import build_backbone
from simco_methods.quiet import quiet

CHECKPOINT, ARGUMENTS = "encoder.ckpt", "args.json"


def check_name(card: Card) -> None:
    """Refuses networks that solo-learn does not have.

    Raises:
        ValueError: by name.
    """
    name = card.backbone
    if name not in BaseMethod._BACKBONES:
        raise ValueError(f"format=solo-learn: solo-learn has no backbone {name}")
    if HOST == "builtin" and name.startswith("poolformer"):
        raise ValueError(
            f"format=solo-learn: solo-learn's {name} has other names for its weights than timm's"
        )


def write(encoder: Encoder, folder: Path) -> None:
    """Writes checkpoint and configuration into a folder."""
    state = {f"backbone.{key}": value for key, value in encoder.backbone.state_dict().items()}
    facts = {"epoch": 0, "global_step": 0, "pytorch-lightning_version": lightning.__version__}
    torch.save({"state_dict": state, **facts}, folder / CHECKPOINT)
    write_json(folder / ARGUMENTS, _arguments(encoder.card))


def read(folder: Path) -> nn.Module:
    """The backbone as solo-learn's scripts build and load it, in evaluation mode."""
    arguments = json.loads((folder / ARGUMENTS).read_text(encoding="utf-8"))
    backbone, dataset = arguments["backbone"], arguments["data"]["dataset"]
    with quiet():
        net = build_backbone(
            BaseMethod._BACKBONES,
            backbone["name"],
            backbone["kwargs"],
            dataset,
            arguments["method"],
        )
    net.load_state_dict(below(read_checkpoint(folder / CHECKPOINT)["state_dict"], "backbone."))
    return net.eval()


def _arguments(card: Card) -> dict[str, Any]:
    # The scripts build a method to take its backbone: SimCo, which has nothing beside a projector.
    return {
        "method": "simco",
        "name": "encoder",
        "max_epochs": 1,
        "backbone": {"name": card.backbone, "kwargs": card.kwargs},
        "data": {
            # By which the scripts choose the stem of a ResNet.
            "dataset": "cifar10" if card.small_stem else "custom",
            "num_classes": max(2, len(card.classes)),
            "num_large_crops": 2,
            "num_small_crops": 0,
        },
        "optimizer": {
            "name": "sgd",
            "batch_size": 256,
            "lr": 0.1,
            "classifier_lr": 0.1,
            "weight_decay": 0.0,
        },
        "scheduler": {"name": "none"},
        "knn_eval": {"enabled": False},
    }
