"""The pack's own backbones, as extra names in the host's backbone table.

solo-learn treats every name that begins with ``resnet`` as a torchvision ResNet: it reads
``inplanes``, replaces ``fc``, and on CIFAR replaces ``conv1`` by a 64-channel 3x3 convolution with
padding 2 and drops the max-pool. ``resnet18_small`` and ``resnet50_small`` are built so that this
changes nothing; other names must offer ``num_features``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from timm.models import resnet as timm_resnet
from torch import Tensor, nn
from torchvision.models import resnet as tv_resnet


class SmallImageResNet(tv_resnet.ResNet):
    """torchvision's ResNet with the small-image stem: one 3x3 convolution, no max-pool.

    State-dict names and shapes are torchvision's but for ``conv1.weight``, (64, 3, 3, 3).

    Args:
        stem_padding: padding of the stem, 2 as in solo-learn (a 32-pixel image becomes 34 x 34) or
            1, which keeps the size and saves a fifth of the FLOPs. It is kept apart from
            ``conv1``, so that a script which replaces ``conv1`` cannot change it unseen.
        **kwargs: of :class:`torchvision.models.resnet.ResNet`.

    Raises:
        ValueError: a stem_padding that is not 0, 1 or 2.
    """

    def __init__(self, block, layers, stem_padding: int = 2, **kwargs):
        if stem_padding not in (0, 1, 2):
            raise ValueError(f"stem_padding must be 0, 1 or 2, got {stem_padding!r}")
        super().__init__(block, layers, **kwargs)
        self.stem_padding = stem_padding
        self.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=stem_padding, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.maxpool = nn.Identity()

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.conv1.weight, padding=self.stem_padding)
        x = self.relu(self.bn1(x))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class StridedPointwise(nn.Conv2d):
    """A 1x1 convolution that, where its weight is trained, takes its stride before it multiplies.

    On CPUs with AVX-512, oneDNN's weight gradient of a strided 1x1 convolution over fewer than 16
    channels writes beyond its memory in channels_last, which ends the process or spoils numbers.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return super().forward(x)
        down, right = self.stride
        return F.conv2d(x[..., ::down, ::right], self.weight, self.bias, groups=self.groups)


# Of timm's ResNet.
MICRO_RESNET = {
    "layers": (1, 1, 1, 1),
    "channels": (32, 64, 128, 256),
    "stem_type": "deep",  # only for its width: the stem itself is replaced
    "stem_width": 16,
    "num_classes": 0,
}


def resnet18_small(method: str | None = None, **kwargs) -> SmallImageResNet:
    """ResNet-18 for images of 32 to 96 pixels; 11.2 M parameters, 512 features."""
    return SmallImageResNet(tv_resnet.BasicBlock, [2, 2, 2, 2], **kwargs)


def resnet50_small(method: str | None = None, **kwargs) -> SmallImageResNet:
    """ResNet-50 for images of 32 to 96 pixels; 23.5 M parameters, 2048 features."""
    return SmallImageResNet(tv_resnet.Bottleneck, [3, 4, 6, 3], **kwargs)


def micro_resnet(method: str | None = None, **kwargs) -> nn.Module:
    """A ResNet-10 of timm's parts for CPU runs; 1.2 M parameters, 256 features.

    One 3x3 convolution of stride 1, then a max-pool: a 32-pixel image enters the blocks at 16.

    Args:
        method: unused; solo-learn passes the method's name to every backbone.
        **kwargs: of :class:`timm.models.resnet.ResNet`.
    """
    # zero_init_last: as torchvision's, the other backbones here
    settings = {"block": timm_resnet.BasicBlock, "zero_init_last": False, **MICRO_RESNET, **kwargs}
    net = timm_resnet.ResNet(**settings)
    net.conv1 = nn.Conv2d(3, net.bn1.num_features, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    for module in net.modules():
        strided = isinstance(module, nn.Conv2d) and module.stride != (1, 1)
        if strided and module.kernel_size == (1, 1) and module.in_channels < 16:
            module.__class__ = StridedPointwise
    return net


# name -> constructor(method, **kwargs), as in solo-learn's table
PACK_BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "resnet18_small": resnet18_small,
    "resnet50_small": resnet50_small,
    "micro_resnet": micro_resnet,
}
