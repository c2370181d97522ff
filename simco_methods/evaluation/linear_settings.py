"""The settings of ``simco-linear``: what there is, what each may be, what goes with what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from simco_methods.config.checks import as_list, each, flag, integer, number, one_of, optional
from simco_methods.evaluation.settings import EvaluationSettings
from simco_methods.measures import no_top5
from simco_methods.settings import setting

if TYPE_CHECKING:
    from simco_methods.encoder.encoder import Encoder
    from simco_methods.evaluation.sides import Sides

# Of each mode and optimiser, where nothing is given.
_LR = {
    "frozen": {
        "sgd": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
        "lars": [0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
        "adamw": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    },
    "finetune": {"sgd": [0.03], "lars": [1.0], "adamw": [5e-4]},
}
_WEIGHT_DECAY = {
    "frozen": dict.fromkeys(("sgd", "lars", "adamw"), 0.0),
    "finetune": {"sgd": 1e-4, "lars": 1e-4, "adamw": 0.05},
}
_EPOCHS = {"frozen": 100, "finetune": 30}
_WARMUP = {"frozen": 0.0, "finetune": 0.1}  # of the epochs
# Which settings are of one mode alone.
_FROZEN_ONLY = ("features", "views", "augment", "holdout")
_FINETUNE_ONLY = ("mixup", "cutmix", "layer_decay", "drop_path")


def _precision(value: Any) -> str | None:
    return None if str(value) in ("32", "bf16") else "32 or bf16"


@dataclass
class LinearSettings(EvaluationSettings):
    """How a classifier is trained on an encoder.

    Attributes:
        mode: "frozen" trains a linear classifier on the encoder's features, "finetune" the whole
            network.
        epochs: by default 100, in finetune 30.
        optimizer: "sgd" (momentum 0.9), "lars" or "adamw".
        lr: learning rates for 256 images a batch, a number or a list (finetune: one). By default
            of sgd [0.01,0.03,0.1,0.3,1,3,10,30], lars [0.03,0.1,0.3,1,3,10], adamw
            [1e-4,3e-4,1e-3,3e-3,1e-2]; in finetune 0.03, 1, 5e-4.
        weight_decay: of weights, not of biases: a number or a list, each with each learning rate.
            By default 0, in finetune 1e-4, of adamw 0.05.
        warmup_epochs: of a linear warm-up; then half a cosine to 0. By default none, in finetune a
            tenth of the epochs.
        holdout: share of the training images by which, of several learning rates or decays, one is
            chosen: by classifiers that do not see them. What is reported is trained on all.
        features: "streamed": new crops and flips every epoch; "cached": views that are forwarded
            once and kept.
        views: how many of each image are cached, an epoch each in turn; by default 1.
        augment: false caches the images as they are, without crop and flip.
        crop_min_scale, flip: of the random crops, the smallest share of an image, and the
            probability of a mirrored one; by default the data set's (0.08 and 0.5; digits 0.5 and
            0).
        precision: 32, or "bf16" for the network.
        label_smoothing: of the targets in training, from 0 to below 1.
        mixup, cutmix: finetune: their alpha, 0 for none; both at once take turns.
        layer_decay: finetune: what a layer's learning rate is of that of the layer above it; the
            classifier is the top one. ResNets count stages, others blocks.
        drop_path: finetune: the rate of stochastic depth, for backbones of timm's.
        out: folder to write to; by default ``linear`` or ``finetune`` beside the encoder, of a part
            of the labels with the ``fraction``: ``linear-0.01``.
        seed: of all that is drawn: crops, order, the classifier at the start.
    """

    mode: str = setting("frozen", one_of("frozen", "finetune"))
    epochs: int | None = setting(None, optional(integer(1)))
    optimizer: str = setting("sgd", one_of("sgd", "lars", "adamw"))
    lr: list[float] | None = setting(
        None, optional(each(number(0, 1e6, open_low=True))), listed=True, commas=True
    )
    weight_decay: list[float] | None = setting(
        None, optional(each(number(0, 1e6))), listed=True, commas=True
    )
    warmup_epochs: float | None = setting(None, optional(number(0)))
    holdout: float | None = setting(None, optional(number(0, 0.5, open_low=True)))
    features: str | None = setting(None, optional(one_of("streamed", "cached")))
    views: int | None = setting(None, optional(integer(1)))
    augment: bool | None = setting(None, optional(flag))
    crop_min_scale: float | None = setting(None, optional(number(0, 1, open_low=True)))
    flip: float | None = setting(None, optional(number(0, 1)))
    precision: Any = setting(32, _precision)
    label_smoothing: float = setting(0.0, number(0, 0.99))
    mixup: float | None = setting(None, optional(number(0)))
    cutmix: float | None = setting(None, optional(number(0)))
    layer_decay: float | None = setting(None, optional(number(0, 1, open_low=True)))
    drop_path: float | None = setting(None, optional(number(0, 0.99)))
    seed: int = setting(0, integer(0, 2**32 - 1))

    def check(self) -> None:
        """Raises ``ValueError`` for settings that do not go together, a line each."""
        faults = list(self._faults())
        if faults:
            raise ValueError("\n".join(faults))

    def completed(self, dataset: str) -> LinearSettings:
        """The settings with every default filled in; None stays where nothing is to be said.

        Args:
            dataset: name of the data set, for its crops and flips.

        Raises:
            ValueError: settings that do not go together, a line each.
        """
        from simco_methods.data.datasets import DATASETS

        self.check()
        seen = DATASETS[dataset]
        frozen = self.mode == "frozen"
        epochs = self.epochs or _EPOCHS[self.mode]
        decays = self.weight_decay
        if decays is None:
            decays = _WEIGHT_DECAY[self.mode][self.optimizer]
        cached = self.augment is False or self.views is not None
        filled = {
            "epochs": epochs,
            "lr": [float(rate) for rate in as_list(self.lr or _LR[self.mode][self.optimizer])],
            "weight_decay": [float(decay) for decay in as_list(decays)],
            "warmup_epochs": epochs * _WARMUP[self.mode]
            if self.warmup_epochs is None
            else self.warmup_epochs,
            "precision": str(self.precision),
        }
        if self.augment is not False:
            filled["crop_min_scale"] = self.crop_min_scale or seen.crop_min_scale
            filled["flip"] = seen.flip if self.flip is None else self.flip
        if frozen:
            features = self.features or ("cached" if cached else "streamed")
            filled |= {"features": features, "augment": self.augment is not False}
            filled["views"] = (self.views or 1) if features == "cached" else None
            if len(filled["lr"]) * len(filled["weight_decay"]) > 1:
                filled["holdout"] = self.holdout or 0.1
        else:
            filled |= {name: getattr(self, name) or 0.0 for name in ("mixup", "cutmix")}
            filled["layer_decay"] = self.layer_decay or 1.0
        return replace(self, **filled)

    def sides(self, encoder: Encoder) -> Sides:
        """The labelled images, with a note of test images that are training images, too, and of a
        top-5 accuracy that there is none of."""
        from simco_methods.evaluation.bank import own_rows

        found = super().sides(encoder)
        notes = [*found.notes, *no_top5(len(found.classes))]
        own = own_rows(found.train, found.test)
        if own is not None:
            notes.append(
                f"{(own >= 0).sum():,} of {len(own):,} test images are training images, too: "
                "accuracies are not of new images"
            )
        return replace(found, notes=notes)

    @property
    def grid(self) -> list[tuple[float, float]]:
        """Pairs of learning rate (for 256 images) and weight decay; of completed settings."""
        return list(product(self.lr, self.weight_decay))

    def _faults(self) -> Iterator[str]:
        frozen = self.mode == "frozen"
        for name in _FINETUNE_ONLY if frozen else _FROZEN_ONLY:
            if getattr(self, name) is not None:
                other = "finetune" if frozen else "frozen"
                yield f"{name}={getattr(self, name)}: is of mode={other}, this is mode={self.mode}"
        epochs = self.epochs or _EPOCHS[self.mode]
        if self.warmup_epochs is not None and self.warmup_epochs >= epochs:
            yield f"warmup_epochs={self.warmup_epochs:g}: must be below epochs={epochs}"
        if frozen:
            if self.features == "streamed" and self.views is not None:
                yield f"views={self.views}: is of features=cached"
            if self.features == "streamed" and self.augment is False:
                yield "augment=false: is of features=cached"
            if self.augment is False and (self.views or 1) > 1:
                yield f"views={self.views}: without augmentation there is one view of an image"
            for name in ("crop_min_scale", "flip"):
                if self.augment is False and getattr(self, name) is not None:
                    yield f"{name}={getattr(self, name):g}: is of an augmentation; augment=false"
            lr = _LR["frozen"][self.optimizer] if self.lr is None else self.lr
            if self.holdout is not None and len(as_list(lr)) * len(as_list(self.weight_decay)) == 1:
                yield f"holdout={self.holdout:g}: there is one lr and weight_decay to choose from"
            return
        for name in ("lr", "weight_decay"):
            given = as_list(getattr(self, name))
            if len(given) > 1:
                yield (
                    f"{name}={given}: mode=finetune trains one network, so it takes one number; "
                    "start the command for each, with an out= of its own"
                )
        if self.batch_size < 2:
            yield "batch_size=1: mode=finetune needs 2 images or more, for batch normalisation"
        if (self.mixup or self.cutmix) and self.batch_size % 2:
            yield f"batch_size={self.batch_size}: mixup and cutmix pair images: take an even one"
