"""Finetuning: an encoder is trained on, with a classifier on top."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from timm.data import Mixup
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import Tensor, nn

from simco_methods.data import PretrainData
from simco_methods.encoder import Card, Encoder
from simco_methods.encoder.loading import build
from simco_methods.evaluation.accuracy import scores, top1_and_top5
from simco_methods.evaluation.linear import LinearResult, choose, tables
from simco_methods.evaluation.linear_features import autocast
from simco_methods.evaluation.linear_heads import INIT_STD
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import (
    StateFile,
    Streamed,
    batch_size,
    make_optimizer,
    train_epochs,
)
from simco_methods.evaluation.loading import extract_features
from simco_methods.evaluation.sides import Sides
from simco_methods.measures import accuracies
from simco_methods.seeds import derived_seed


def finetune(
    encoder: Encoder, sides: Sides, settings: LinearSettings, state: StateFile | None = None
) -> LinearResult:
    """Trains a copy of an encoder with a classifier on top, and tests it.

    Args:
        encoder: on its device; stays as it is.
        sides: to train and to test on.
        settings: of mode=finetune.
        state: where to keep the state of an unfinished training, and to take it up from.

    Raises:
        ValueError: settings that do not go together or do not fit the backbone, or a loss that is
            not finite.
    """
    settings = settings.completed(sides.name)
    if settings.mode != "finetune":
        raise ValueError(f"mode={settings.mode}: finetuning is of mode=finetune")
    size = batch_size(settings, sides.train)
    batches = Streamed(encoder, sides.train, sides.test, settings, size)
    network = _Network(encoder, batches.data, len(sides.classes), settings, size)
    history, seconds = train_epochs(network, batches, settings, len(sides.train) // size, state)
    choose(history[-1], settings)
    found = scores(*network.test(), sides.classes)
    backbone, head = network.backbone.eval(), network.head.cpu()
    return LinearResult(found, *tables(history, 0, settings, size), head, backbone, seconds)


def trainable_backbone(encoder: Encoder, drop_path: float | None) -> nn.Module:
    """A copy of an encoder's backbone, with stochastic depth if ``drop_path`` is not None.

    Raises:
        ValueError: a backbone that has no stochastic depth.
    """
    if drop_path is None:
        return copy.deepcopy(encoder.backbone)
    card = encoder.card
    try:
        made = build(replace(card, kwargs={**card.kwargs, "drop_path_rate": drop_path}))
    except ValueError as error:
        raise ValueError(f"drop_path={drop_path:g}: {card.backbone} has none ({error})") from error
    made.load_state_dict(encoder.backbone.state_dict())
    return made.to(encoder.device)


class _Network:
    """Backbone and classifier, as a :class:`~.linear_training.Learner`."""

    def __init__(
        self,
        encoder: Encoder,
        data: PretrainData,
        classes: int,
        settings: LinearSettings,
        size: int,
    ):
        self.settings, self.data, self.device = settings, data, encoder.device
        self.backbone = trainable_backbone(encoder, settings.drop_path)
        self.head = nn.Linear(encoder.features, classes)
        generator = torch.Generator().manual_seed(settings.seed)
        nn.init.normal_(self.head.weight, std=INIT_STD, generator=generator)
        nn.init.zeros_(self.head.bias)
        self.network = nn.Sequential(self.backbone, self.head).to(self.device)
        ((lr, decay),) = settings.grid
        groups = layer_groups(
            encoder.card, self.backbone, self.head, lr * size / 256, decay, settings.layer_decay
        )
        self.optimizer = make_optimizer(settings.optimizer, groups)
        self._mix = None
        if settings.mixup or settings.cutmix:
            self._mix = Mixup(
                mixup_alpha=settings.mixup,
                cutmix_alpha=settings.cutmix,
                label_smoothing=settings.label_smoothing,
                num_classes=classes,
            )

    def step(self, number: int, indices: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        self.network.train()
        smoothing = self.settings.label_smoothing
        with drawn_by(derived_seed(self.settings.seed, number), self.device):
            if self._mix is not None:
                images, labels = self._mix(images, labels)
                smoothing = 0.0  # which is in the mixed labels
            with autocast(self.device, self.settings):
                logits = self.network(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=smoothing)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        self.optimizer.step()
        return loss.detach().reshape(1)

    def evaluate(self) -> dict[str, list[float]]:
        """``acc1`` and, of six classes and more, ``acc5`` on the test images.

        Raises:
            ValueError: weights that are not finite.
        """
        logits, labels = self.test()
        if not logits.isfinite().all():
            raise ValueError(
                f"lr={self.settings.lr[0]:g}: the loss did not stay finite; take a lower one"
            )
        found = accuracies("", *top1_and_top5(logits, labels))
        return {name: [accuracy] for name, accuracy in found.items()}

    def test(self) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,) of the test images, on the CPU."""
        self.network.eval()
        with autocast(self.device, self.settings):
            return extract_features(
                self.network, self.data.val_dataloader(), self.device, "test images"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


@contextmanager
def drawn_by(seed: int, device: torch.device) -> Iterator[None]:
    """All that torch and NumPy draw within is a function of ``seed``; what they draw after it is as
    if nothing had been."""
    numpy_state = np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)


# ---- layers --------------------------------------------------------------------------------------


def layer_groups(
    card: Card, backbone: nn.Module, head: nn.Module, lr: float, weight_decay: float, decay: float
) -> list[dict[str, Any]]:
    """Parameter groups of a network, by layer; vectors have no weight decay.

    Args:
        card: of the backbone.
        backbone: ResNets are layered by stage, others as timm layers them.
        head: the layer above.
        lr: of the head.
        weight_decay: of matrices.
        decay: what each layer's rate is of that of the layer above it.

    Raises:
        ValueError: a decay other than 1 and a backbone whose layers are not known.
    """
    layered = _Layered(card.backbone, backbone, head, decay)
    no_decay = getattr(backbone, "no_weight_decay", set)()
    if decay == 1:
        groups = param_groups_weight_decay(layered, weight_decay, no_weight_decay_list=no_decay)
    else:
        groups = param_groups_layer_decay(
            layered, weight_decay=weight_decay, no_weight_decay_list=no_decay, layer_decay=decay
        )
    for group in groups:
        group["lr"] = lr * group.pop("lr_scale", 1.0)
    return groups


class _Layered:
    """A network as timm's ``param_groups_layer_decay`` asks for it: its parameters' names, and how
    they tell the layer. Names that no pattern has, the head's, are of the top layer."""

    def __init__(self, name: str, backbone: nn.Module, head: nn.Module, decay: float):
        self.name, self.decay = name, decay
        self.backbone, self.head = backbone, head

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.backbone.named_parameters()
        for name, parameter in self.head.named_parameters():
            yield f"head.{name}", parameter

    def group_matcher(self, coarse: bool) -> dict[str, Any]:
        if hasattr(self.backbone, "layer4"):
            return {"stem": r"^(?:conv1|bn1)\b", "stages": r"^layer(\d+)"}
        if not hasattr(self.backbone, "group_matcher"):
            raise ValueError(
                f"layer_decay={self.decay:g}: the layers of {self.name} are not known; set 1"
            )
        return self.backbone.group_matcher(coarse=coarse)
