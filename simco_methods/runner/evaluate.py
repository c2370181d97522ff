"""Offline kNN accuracy: a bank of unaugmented training images, one encoder for both sides."""

from __future__ import annotations

import torch
from torch import nn

from simco_methods.data import PretrainData
from simco_methods.data.images import UNLABELLED
from simco_methods.evaluation.loading import bank_and_query_features
from simco_methods.host.knn import knn_accuracy


def offline_knn(
    model: nn.Module, data: PretrainData, device: torch.device, k: int, distance: str
) -> dict[str, float]:
    """``knn_acc1`` and ``knn_acc5`` in percent of the model's backbone in eval mode.

    Nothing where no image of a side has a label. The model is left on the device and in the mode
    that it was in.
    """
    if any((images.labels == UNLABELLED).all() for images in (data.train, data.val)):
        return {}
    backbone = model.backbone
    was_training, was_on = backbone.training, next(backbone.parameters()).device
    backbone.to(device).eval()
    bank, queries = bank_and_query_features(
        backbone, data.bank_dataloader(), data.val_dataloader(), device
    )
    backbone.to(was_on).train(was_training)
    kept = queries[1] >= 0
    acc1, acc5 = knn_accuracy(
        *bank,
        queries[0][kept],
        queries[1][kept],
        k=k,
        distance=distance,
        num_classes=model.num_classes,
    )
    return {"knn_acc1": acc1, "knn_acc5": acc5}
