"""The pack's backbones: every width and size can be trained."""

import pytest
import torch
from torch import nn

from simco_methods.backbones import StridedPointwise, micro_resnet
from tests.helpers import run_script

# In a process of its own: what goes wrong ends it without an exception, or only spoils numbers.
STEPS = """
import torch
from simco_methods.backbones import micro_resnet

for channels, size, images in {cases}:
    network = micro_resnet(channels=channels).to(memory_format=torch.channels_last)
    gradients = []
    for format in (torch.channels_last, torch.contiguous_format):
        views = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(0))
        network.zero_grad()
        for _ in range(2):
            network(views.to(memory_format=format)).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))
"""
# Of blocks that halve the size, from under 16 channels and from 16, many pixels and few.
CASES = [
    ([8, 8, 16, 16], 96, 2),
    ([8, 8, 16, 16], 100, 16),
    ([15, 4, 12, 20], 96, 4),
    ([1, 2, 3, 4], 224, 2),
    ([16, 17, 24, 31], 128, 4),
    ([8, 8, 16, 16], 16, 8),
]


def test_narrow_networks_train_at_every_size(tmp_path):
    done = run_script("-c", STEPS.format(cases=CASES), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("stride, size", [((2, 2), 9), ((2, 1), 8), ((3, 3), 7)])
def test_a_strided_pointwise_convolution_is_torch_s(stride, size):
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 6, 1, stride)
    own = StridedPointwise(4, 6, 1, stride)
    own.load_state_dict(plain.state_dict())
    images = [torch.randn(2, 4, size, size).requires_grad_()]
    images.append(images[0].detach().clone().requires_grad_())
    values = [layer(image) for layer, image in zip((plain, own), images, strict=True)]
    torch.testing.assert_close(*values)
    for value in values:
        value.square().sum().backward()
    torch.testing.assert_close(images[0].grad, images[1].grad)
    torch.testing.assert_close(plain.weight.grad, own.weight.grad)


def test_networks_of_the_default_width_have_torch_s_own_layers():
    kinds = {type(module) for module in micro_resnet().modules()}
    assert nn.Conv2d in kinds and StridedPointwise not in kinds
