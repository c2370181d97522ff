"""Two mends of solo-learn's own classes and a hook, made when the methods are registered with it.

Nothing of what works there changes: the first makes its resuming stricter, the second lets a class
be built that cannot be otherwise, the hook lets a config ask for the analyses and for compiling.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf
from solo.methods.base import BaseMethod
from solo.utils.auto_resumer import AutoResumer
from solo.utils.knn import WeightedKNNClassifier
from torchmetrics import Metric

# What makes a run another one, beside what solo-learn compares itself: name, method, backbone, data
# set, epochs, most of the optimiser, the W&B project and what main_linear.py evaluates.
RESUME_KEYS = (
    "seed",
    "method_kwargs",
    "momentum",
    "augmentations",
    "optimizer",
    "scheduler",
    "accumulate_grad_batches",
    "precision",
    "devices",
    "num_nodes",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "limit_train_batches",
    "sync_batchnorm",
    "data.train_path",
    "data.val_path",
    "data.no_labels",
    "data.format",
    "data.fraction",
    # Of main_linear.py.
    "pretrain_method",
    "finetune",
    "mixup",
    "cutmix",
    "label_smoothing",
    "auto_augment",
)


def compare_whole_runs() -> None:
    """Lets ``auto_resume`` continue a run only where all of :data:`RESUME_KEYS` is the same, too.

    By itself solo-learn would continue a sweep's ``tau_beta=2`` from the checkpoint of
    ``tau_beta=1``.
    """
    missing = [key for key in RESUME_KEYS if key not in AutoResumer.SHOULD_MATCH]
    AutoResumer.SHOULD_MATCH = [*AutoResumer.SHOULD_MATCH, *missing]


class _OnlyCollects(Metric):
    """As torchmetrics was: ``compute_on_step=False`` is taken, and a call only updates."""

    def __init__(self, *, compute_on_step: bool = False, **kwargs: Any):
        super().__init__(**kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> None:
        self.update(*args, **kwargs)


def online_knn_on_new_torchmetrics() -> None:
    """Lets solo-learn's kNN be built on torchmetrics that has dropped an argument of it."""
    try:
        WeightedKNNClassifier()
    except ValueError:
        WeightedKNNClassifier.__bases__ = (_OnlyCollects,)


def _configure_callbacks(self: BaseMethod) -> list[Any]:
    # Each loaded only where it is asked for, and here because the layers below may not know it.
    wanted: list[Any] = []
    if OmegaConf.select(self.cfg, "performance.compile", default=False):
        from simco_methods.compiling import CompileForwards

        wanted.append(CompileForwards())
    if OmegaConf.select(self.cfg, "analysis.enabled", default=False):
        from simco_methods.analysis.during import DuringTraining

        wanted.append(DuringTraining(self.cfg))
    # simco-pretrain has put them there.
    there = {type(callback) for callback in self.trainer.callbacks}
    return [callback for callback in wanted if type(callback) not in there]


def callbacks_by_config() -> None:
    """Lets ``analysis.enabled`` of any method's config add the analyses during training, and
    ``performance.compile`` compile its network."""
    BaseMethod.configure_callbacks = _configure_callbacks


def mend() -> None:
    """Makes all three; a second call changes nothing."""
    compare_whole_runs()
    online_knn_on_new_torchmetrics()
    callbacks_by_config()
