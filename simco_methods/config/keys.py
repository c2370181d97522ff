"""The config keys beside those of Lightning's Trainer, and what each allows.

Importable without torch; :mod:`simco_methods.config.schema` holds a whole config to them.
"""

from __future__ import annotations

from simco_methods.config.checks import (
    Check,
    anything,
    exactly,
    file_name,
    flag,
    fraction,
    integer,
    mapping,
    number,
    numbers,
    one_of,
    optional,
    text,
    whole_numbers,
)
from simco_methods.config.during import DURING
from simco_methods.options import DATASETS, DISTANCES, INTERPOLATIONS, LOADERS, ON_ERROR

_PROBABILITY = number(0, 1)
_AMOUNT = number(0, 100)

# Keys of Lightning's Trainer stand in trainer_keys.py; those below method_kwargs and the two kwargs
# are the method's, the backbone's and the optimiser's.
RUN: dict[str, Check] = {
    "name": file_name,
    "method": text,
    "method_kwargs": mapping,
    "seed": integer(0, 2**32 - 1),  # those that NumPy takes
    "output_dir": optional(text),
    "debug_augmentations": flag,
    "resume_from_checkpoint": optional(text),
    "backbone.name": text,
    "backbone.kwargs": mapping,
    "momentum.base_tau": _PROBABILITY,
    "momentum.final_tau": _PROBABILITY,
    "momentum.classifier": flag,
    "data.dataset": one_of(*DATASETS),
    "data.train_path": optional(text),
    "data.val_path": optional(text),
    "data.labels": optional(text),
    "data.val_labels": optional(text),
    "data.test_share": optional(number(0, 1, open_low=True)),
    "data.format": one_of("image_folder"),
    "data.no_labels": flag,
    "data.fraction": fraction,
    "data.loader": one_of(*LOADERS),
    "data.num_workers": integer(0),
    "data.on_error": one_of(*ON_ERROR),
    "data.num_classes": integer(0),
    "data.num_large_crops": exactly(2),
    "data.num_small_crops": exactly(0),
    "data.download": flag,
    "data.train_images_per_class": optional(integer(1)),
    "data.val_images_per_class": optional(integer(1)),
    "optimizer.name": one_of("sgd", "lars", "adam", "adamw"),
    "optimizer.batch_size": integer(1),
    "optimizer.lr": number(0),
    "optimizer.classifier_lr": number(0),
    "optimizer.weight_decay": number(0),
    "optimizer.exclude_bias_n_norm_wd": flag,
    "optimizer.kwargs": mapping,
    "scheduler.name": one_of("warmup_cosine", "step", "none"),
    "scheduler.min_lr": number(0),
    "scheduler.warmup_start_lr": number(0),
    "scheduler.warmup_epochs": number(0),
    "scheduler.lr_decay_steps": optional(whole_numbers),
    "scheduler.interval": one_of("step", "epoch"),
    "knn_eval.enabled": flag,
    "knn_eval.k": integer(1),
    "knn_eval.offline": flag,
    "knn_eval.distance_func": one_of(*DISTANCES),
    "performance.disable_channel_last": flag,
    "performance.compile": flag,
    "checkpoint.enabled": flag,
    "checkpoint.dir": optional(text),
    "checkpoint.frequency": integer(1),
    "checkpoint.keep_prev": flag,
    "auto_resume.enabled": flag,
    "auto_resume.max_hours": optional(number(0)),
    **{f"analysis.{key}": check for key, check in DURING.items()},
    "wandb.enabled": flag,
    "wandb.entity": optional(text),
    "wandb.project": text,
    "wandb.offline": flag,
    "on_nonfinite": one_of("stop", "skip"),
    "augmentations": anything,  # a list of VIEW
    "hydra": anything,
}

VIEW: dict[str, Check] = {
    "crop_size": integer(1, 2**14),
    "num_crops": integer(1),
    "mean": numbers(3),
    "std": numbers(3, open_low=0),
    "rrc.enabled": flag,
    "rrc.crop_min_scale": number(0, 1, open_low=True),
    "rrc.crop_max_scale": number(0, 1, open_low=True),
    "rrc.interpolation": one_of(*INTERPOLATIONS),
    "color_jitter.prob": _PROBABILITY,
    "color_jitter.brightness": _AMOUNT,
    "color_jitter.contrast": _AMOUNT,
    "color_jitter.saturation": _AMOUNT,
    "color_jitter.hue": number(0, 0.5),
    "grayscale.prob": _PROBABILITY,
    "gaussian_blur.prob": _PROBABILITY,
    "solarization.prob": _PROBABILITY,
    "equalization.prob": _PROBABILITY,
    "horizontal_flip.prob": _PROBABILITY,
}
