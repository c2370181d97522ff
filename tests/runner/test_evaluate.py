"""The offline kNN: all its tensors on one device, whatever the loader's are on."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from simco_methods.evaluation.loading import extract_features
from simco_methods.runner.evaluate import offline_knn


def test_features_and_labels_come_to_the_cpu(monkeypatch):
    moved = []
    original = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(self) or original(self))
    images, labels = torch.randn(4, 3), torch.arange(4)
    backbone = nn.Linear(3, 2)
    found = extract_features(backbone, [(images, labels)], torch.device("cpu"))
    assert [side.shape for side in found] == [(4, 2), (4,)]
    assert any(tensor is labels for tensor in moved)


def test_unlabelled_queries_do_not_count():
    class Data:
        train = val = SimpleNamespace(labels=np.array([0, 1, -1]))

        def bank_dataloader(self):
            return [(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))]

        def val_dataloader(self):
            return [(torch.eye(3), torch.tensor([0, 1, -1]))]

    model = nn.Module()
    model.backbone, model.num_classes = nn.Linear(3, 3, bias=False), 3
    nn.init.eye_(model.backbone.weight)
    [found] = offline_knn([model], Data(), torch.device("cpu"), k=3, distance="cosine")
    assert found["knn_acc1"] == 100.0
