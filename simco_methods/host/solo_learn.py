"""The solo-learn host: its base classes, with the pack's steps in front of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from solo.methods.base import BaseMethod, BaseMomentumMethod
from solo.utils.lr_scheduler import LinearWarmupCosineAnnealingLR
from torch import Tensor, nn

from simco_methods.host.knn import OnlineKNN
from simco_methods.host.schedule import WarmupCosineLR
from simco_methods.host.steps import MomentumSteps, ViewSteps
from simco_methods.measures import has_top5

__all__ = ["BaseMethod", "BaseMomentumMethod", "Baseline", "LeanMethod", "LeanMomentumMethod"]


class _ClosedFormCosine:
    def configure_optimizers(self):
        """With the warm-up cosine in closed form, for the same rates (a predictor's fixed one from
        the first step, not from the second).

        solo-learn's own saves the lengths of the schedule with its state, so that an extended run
        would train at 0, and beside a fixed rate a function, so that the checkpoint could not be
        read with ``weights_only``.
        """
        configured = super().configure_optimizers()
        if not isinstance(configured, tuple) or not isinstance(configured[1][0], dict):
            return configured
        (optimizer,), (entry,) = configured
        theirs = entry["scheduler"]
        if not isinstance(theirs, LinearWarmupCosineAnnealingLR):
            return configured
        for group in optimizer.param_groups:
            group["lr"] = group.pop("initial_lr")
        fixed = vars(theirs).get("get_lr")  # a partial, where solo-learn has put one
        ours = WarmupCosineLR(
            optimizer,
            warmup_steps=round(theirs.warmup_epochs),
            total_steps=theirs.max_epochs,
            warmup_start_lr=theirs.warmup_start_lr,
            min_lr=theirs.eta_min,
            static_groups=fixed.keywords["param_group_indexes"] if fixed else (),
        )
        return [optimizer], [{**entry, "scheduler": ours}]


class Baseline(_ClosedFormCosine):
    """A method of solo-learn's own as the runner trains it. To be put in front of its class.

    Its training is its own. It goes on after a resume as if it had not stopped, and its online kNN
    is measured as that of the pack's methods: solo-learn's counts the classes in the labels that it
    has seen, and fails where one is missing. Of fewer than six classes no top-5 accuracy is logged.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        if self.knn_eval:
            settings = cfg.knn_eval
            self.knn = _KNN(OnlineKNN(settings.k, settings.distance_func, self.num_classes))

    def on_train_start(self) -> None:
        """Sets tau and the count of EMA updates from the step; solo-learn's own start again."""
        super().on_train_start()
        if isinstance(self, BaseMomentumMethod):
            self.last_step = self.trainer.global_step
            self.momentum_updater.update_tau(
                self.trainer.global_step, self.trainer.estimated_stepping_batches
            )

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """As of Lightning, without the top-5 accuracies that can only be 100 %."""
        if not has_top5(self.num_classes):
            dictionary = {k: v for k, v in dictionary.items() if not k.endswith("acc5")}
        super().log_dict(dictionary, *args, **kwargs)


class _KNN(nn.Module):
    """:class:`OnlineKNN`, called as solo-learn calls its own."""

    def __init__(self, knn: OnlineKNN):
        super().__init__()
        self.knn = knn

    def forward(
        self,
        train_features: Tensor | None = None,
        train_targets: Tensor | None = None,
        test_features: Tensor | None = None,
        test_targets: Tensor | None = None,
    ) -> None:
        if train_features is not None:
            self.knn.update("train", train_features, train_targets)
        if test_features is not None:
            self.knn.update("test", test_features, test_targets)

    def compute(self) -> tuple[float, float | None]:
        accuracies = self.knn.compute()
        self.knn.reset()
        return accuracies or (-1.0, -1.0)


class _SoloSteps(_ClosedFormCosine):
    def __init__(self, cfg: DictConfig):
        # solo-learn's online kNN cannot be built on torchmetrics 0.12 and later; ours takes its
        # place, so its own is not asked for.
        wanted = OmegaConf.select(cfg, "knn_eval.enabled", default=False)
        if wanted:
            cfg.knn_eval.enabled = False
        super().__init__(cfg)
        self.cfg.knn_eval.enabled = wanted
        self.init_steps()

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        groups = [{**group, "params": list(group["params"])} for group in super().learnable_params]
        return [group for group in groups if group["params"]]


class LeanMethod(_SoloSteps, ViewSteps, BaseMethod):
    """solo-learn's ``BaseMethod`` with the pack's steps."""


class LeanMomentumMethod(_SoloSteps, MomentumSteps, BaseMomentumMethod):
    """solo-learn's ``BaseMomentumMethod`` with the pack's steps."""

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        self.init_momentum_steps()
