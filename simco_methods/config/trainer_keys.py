"""The arguments of Lightning's Trainer: those that a config may set, and why not the others."""

from __future__ import annotations

import inspect
from typing import Any

from lightning.pytorch import Trainer

from simco_methods.config.checks import (
    Check,
    flag,
    integer,
    number,
    one_of,
    optional,
    share_or_count,
)
from simco_methods.config.spelling import devices_allowed, precision_allowed

# Others leave a run without its end: those that start processes of their own cannot hand the
# trained model back, and those that shard it leave no process with the whole of it.
STRATEGIES = (
    "auto",
    "ddp",
    "ddp_find_unused_parameters_false",
    "ddp_find_unused_parameters_true",
)
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


def _deterministic(value: Any) -> str | None:
    return None if isinstance(value, bool) or value in ("warn", None) else "true, false or warn"


_ALLOWED: dict[str, Check] = {
    "accelerator": optional(one_of(*ACCELERATORS)),
    "strategy": optional(one_of(*STRATEGIES)),
    "devices": optional(devices_allowed),
    "num_nodes": integer(1, 4096),
    "precision": optional(precision_allowed),
    "max_epochs": integer(1),
    "limit_train_batches": optional(share_or_count(1)),
    "limit_val_batches": optional(share_or_count(0)),
    "check_val_every_n_epoch": integer(1),
    "num_sanity_val_steps": optional(integer(-1)),
    "log_every_n_steps": integer(1),
    "accumulate_grad_batches": integer(1),
    "gradient_clip_val": optional(number(0)),
    "gradient_clip_algorithm": optional(one_of("norm", "value")),
    "sync_batchnorm": flag,
    "deterministic": _deterministic,
    "benchmark": optional(flag),
    "inference_mode": flag,
    "detect_anomaly": flag,
    "profiler": optional(one_of("simple", "advanced", "pytorch")),
    "enable_progress_bar": optional(flag),
    "enable_model_summary": optional(flag),
    "enable_autolog_hparams": flag,
}

_ENDS_EARLY = "a run ends after max_epochs, and nowhere else"
_OWN = "the runner sets it itself"
REFUSED: dict[str, str] = {
    "max_steps": _ENDS_EARLY,
    "max_time": _ENDS_EARLY,
    "min_steps": _ENDS_EARLY,
    "min_epochs": _ENDS_EARLY,
    "fast_dev_run": _ENDS_EARLY,
    "overfit_batches": "data.train_images_per_class or data.fraction take less of the data",
    "logger": _OWN,
    "callbacks": _OWN,
    "default_root_dir": "output_dir is where a run goes",
    "enable_checkpointing": "checkpoint.enabled is",
    "use_distributed_sampler": "the runner's sampler shares the images out itself",
    "barebones": "a run without logs and checkpoints cannot be recorded or resumed",
    "val_check_interval": "an epoch's accuracies are those at its end; see check_val_every_n_epoch",
    "reload_dataloaders_every_n_epochs": "the loaders go on over the epochs, for an order of their "
    "own in each",
    "plugins": "objects cannot be given in a config; precision and strategy are keys",
    "limit_test_batches": "there is no test loop; limit_val_batches is for the validation",
    "limit_predict_batches": "there is no prediction loop",
    "model_registry": "checkpoints are files of the run's folder",
}

_ARGUMENTS = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
TRAINER: dict[str, Check] = {key: check for key, check in _ALLOWED.items() if key in _ARGUMENTS}
