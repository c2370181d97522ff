"""The losses against figures recorded from other implementations (float64, 1e-9).

tests/figures/losses.{json,npz}: the authors' published dual-temperature loss and solo-learn's
MoCo v2+ loss, run in float64 on random unit vectors.
"""

import json

import numpy as np
import pytest
import torch

from simco_methods.losses import dual_temperature_loss, info_nce_loss
from tests import FIGURES

CASES = json.loads((FIGURES / "losses.json").read_text())
ARRAYS = np.load(FIGURES / "losses.npz")


def array(case, name):
    return torch.from_numpy(ARRAYS[f"{case['index']}/{name}"])


def close(actual, expected):
    torch.testing.assert_close(
        actual, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case{case['index']}")
@pytest.mark.parametrize("symmetric", [False, True])
def test_dual_temperature(case, symmetric):
    query, key = (array(case, name).requires_grad_() for name in ("query", "key"))
    loss = dual_temperature_loss(
        query, key, tau_alpha=case["tau_alpha"], tau_beta=case["tau_beta"], symmetric=symmetric
    )
    suffix = "_symmetric" if symmetric else ""
    close(loss, case[f"dual_temperature{suffix}"])
    loss.backward()
    close(query.grad, array(case, f"dt{suffix}_grad_query"))
    close(key.grad, array(case, f"dt{suffix}_grad_key"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case{case['index']}")
def test_info_nce(case):
    query = array(case, "query").requires_grad_()
    loss = info_nce_loss(query, array(case, "key"), array(case, "queue"), tau=case["tau_alpha"])
    close(loss, case["moco_with_queue_at_tau_alpha"])
    loss.backward()
    close(query.grad, array(case, "moco_grad_query"))
