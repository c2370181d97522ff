import warnings

import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from torch.utils.data import DataLoader

from simco_methods.methods.monitor import effective_rank, embedding_std, mean_similarity
from simco_methods.methods.watch import TrainingWatch
from tests.helpers import batch, build, quiet_trainer


def unit(n, d):
    generator = torch.Generator().manual_seed(0)
    return torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)


def messages(embeddings):
    watch = TrainingWatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            watch.check(
                float(embedding_std(embeddings)),
                float(effective_rank(embeddings)),
                float(mean_similarity(embeddings)),
                *embeddings.shape,
            )
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("d", [8, 128])
def test_random_unit_vectors_are_spread(d):
    embeddings = unit(1024, d)
    assert embedding_std(embeddings) == pytest.approx(d**-0.5, rel=0.02)
    assert effective_rank(embeddings) > 0.9 * d
    assert messages(embeddings) == []


def test_constant_features_warn_once():
    embeddings = unit(1, 32).expand(64, 32)
    assert embedding_std(embeddings) < 1e-6 and effective_rank(embeddings) == pytest.approx(1, 1e-3)
    (message,) = messages(embeddings)
    assert "collapsed" in message


def test_rank_one_features_warn_of_the_rank():
    embeddings = torch.sign(torch.randn(64, 1)) * unit(1, 32)
    assert effective_rank(embeddings) == pytest.approx(1, abs=1e-3)
    (message,) = messages(embeddings)
    assert "effective rank is 1.0" in message


def test_a_narrow_cone_warns_of_the_similarity():
    """Each dimension varies, and the rank is high."""
    cone = torch.nn.functional.normalize(unit(1, 32) + 0.07 * unit(64, 32), dim=1)
    assert effective_rank(cone) > 4 and embedding_std(cone) > 0.05 / 32**0.5
    assert mean_similarity(cone) == pytest.approx(0.995, abs=2e-3)
    (message,) = messages(cone)
    assert "the mean cosine of two images is 0.99" in message


def test_mean_similarity_is_that_of_the_pairs():
    embeddings = torch.nn.functional.normalize(unit(9, 5) + 0.5, dim=1)
    others = ~torch.eye(9, dtype=bool)
    pairs = (embeddings @ embeddings.T)[others]
    assert mean_similarity(embeddings) == pytest.approx(float(pairs.mean()), abs=1e-6)


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_few_rows_are_no_low_rank(rows):
    assert messages(unit(rows, 128)) == []
    (message,) = messages(torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])[:rows] * unit(1, 32))
    assert "effective rank is 1.0" in message


def test_effective_rank_of_broken_features_is_nan():
    embeddings = unit(8, 4)
    embeddings[3, 1] = float("inf")
    assert effective_rank(embeddings).isnan()


def test_effective_rank_of_equal_directions():
    assert effective_rank(torch.eye(6).repeat(3, 1)) == pytest.approx(6)


def test_values_of_a_step_are_logged_where_loggers_are_updated():
    """Under the names, at the steps and with the values that logging each step would give."""

    class Rows(DummyLogger):
        def log_metrics(self, metrics, step=None):
            rows.append((step, metrics))

    rows = []
    model = build("simmoco", max_epochs=2, momentum__base_tau=0.9, momentum__final_tau=1.0)
    taus, contrast = [], []
    log_contrast, update = model.log_contrast, model.momentum_updater.update_pairs
    model.log_contrast = lambda loss, *pair: (
        contrast.append(loss.item()),
        log_contrast(loss, *pair),
    )
    model.momentum_updater.update_pairs = lambda pairs: (
        taus.append(model.momentum_updater.cur_tau),
        update(pairs),
    )
    run = quiet_trainer(max_epochs=2, logger=Rows(), log_every_n_steps=3)
    run.fit(model, DataLoader([batch(seed=seed) for seed in range(5)], batch_size=None))
    rows = {step: metrics for step, metrics in rows if "tau" in metrics}
    assert list(rows) == [2, 5, 8]
    spread = ("z_std", "effective_rank", "similarity")
    names = ("nce_loss", *spread, "hardness", "hardness_std", "penalty_entropy")
    for step, metrics in rows.items():
        assert {f"train_{name}_step" for name in names} | {"tau", "epoch"} == set(metrics)
        assert metrics["tau"] == pytest.approx(taus[step])
        assert metrics["train_nce_loss_step"] == pytest.approx(contrast[step])
