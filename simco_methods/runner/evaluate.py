"""Offline kNN accuracy: a bank of unaugmented training images, one encoder for both sides."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from simco_methods.data import PretrainData
from simco_methods.data.images import UNLABELLED
from simco_methods.evaluation.loading import bank_and_query_features
from simco_methods.host.knn import knn_accuracy
from simco_methods.measures import accuracies


def offline_knn(
    models: Sequence[nn.Module], data: PretrainData, device: torch.device, k: int, distance: str
) -> list[dict[str, float]]:
    """``knn_acc1`` and, of six classes and more, ``knn_acc5`` of each backbone in evaluation mode.

    Nothing where no image of a side has a label. The models are left on the device and in the mode
    that they were in.
    """
    if any((images.labels == UNLABELLED).all() for images in (data.train, data.val)):
        return [{} for _ in models]
    backbones = [model.backbone for model in models]
    before = [(b.training, next(b.parameters()).device) for b in backbones]
    for backbone in backbones:
        backbone.to(device).eval()
    features = bank_and_query_features(
        backbones, data.bank_dataloader(), data.val_dataloader(), device
    )
    found = []
    for model, (bank, queries) in zip(models, features, strict=True):
        kept = queries[1] >= 0
        reached = knn_accuracy(
            *bank,
            queries[0][kept],
            queries[1][kept],
            k=k,
            distance=distance,
            num_classes=model.num_classes,
        )
        found.append(accuracies("knn_", *reached))
    for backbone, (was_training, was_on) in zip(backbones, before, strict=True):
        backbone.to(was_on).train(was_training)
    return found
