"""The settings of ``simco-transfer``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simco_methods.config.checks import each, flag, one_of, optional, text
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.files import user_path
from simco_methods.options import ON_ERROR
from simco_methods.settings import setting

if TYPE_CHECKING:
    from simco_methods.evaluation.local import LocalDataset

_FOLDER = Path("datasets")  # where nothing is said


@dataclass
class TransferSettings(LinearSettings):
    """What ``simco-transfer ENCODER key=value ...`` takes.

    Attributes:
        data: folder with the data sets, by default ``datasets`` if it is there: torchvision's files
            of CIFAR, SVHN and STL-10, in it or in a subfolder, and subfolders with class folders,
            below train/ and test/ (or val/) or without a split.
        datasets: names of those to take, by default all that are found and the embedded digits.
        untrained: also the kNN accuracy of the same network with the weights that its training
            started from, or random ones where that is not known.
        test_share: the share of each class that is tested on, where class folders have no split; by
            default that of the encoder's own training (``data.test_share``), else 0.2.
        on_error: what an image that cannot be read does: "raise" fails its data set, "skip" leaves
            it out, after all have been looked at.
        features: of the linear classifier; "cached": views that are forwarded once and kept;
            "streamed": new crops and flips every epoch.
        mode: "frozen".
        out: folder to write to; by default ``transfer`` beside the encoder.
    """

    CONFIG: ClassVar[tuple[str, ...]] = ("backbone",)

    data: str | None = setting(None, optional(text))
    datasets: list[str] | None = setting(None, optional(each(text)), listed=True, commas=True)
    untrained: bool = setting(True, flag)
    on_error: str = setting("raise", one_of(*ON_ERROR))
    features: str = setting("cached", one_of("cached", "streamed"))
    mode: str = setting("frozen", one_of("frozen"))

    def found(self) -> tuple[dict[str, LocalDataset], list[str]]:
        """The data sets to take, by name, and the subfolders that are none.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: names of none that is found.
        """
        from simco_methods.evaluation.local import local_datasets

        folder = user_path(self.data) if self.data else _FOLDER
        there, others = local_datasets(folder if self.data or folder.is_dir() else None)
        if self.datasets is None:
            return there, others
        unknown = [name for name in self.datasets if name not in there]
        if unknown:
            raise ValueError(
                f"datasets={','.join(unknown)}: not found in {folder}; there are {', '.join(there)}"
            )
        return {name: there[name] for name in self.datasets}, []
