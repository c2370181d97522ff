"""The settings of ``simco-knn``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simco_methods.config.checks import each, integer, number, one_of, optional, text
from simco_methods.evaluation.settings import EvaluationSettings
from simco_methods.options import DISTANCES, STANDARD_TEMPERATURE
from simco_methods.settings import setting

if TYPE_CHECKING:
    from simco_methods.evaluation.bank import BankAndQueries

KS = (1, 5, 10, 20, 50, 100, 200)


@dataclass
class KNNSettings(EvaluationSettings):
    """What ``simco-knn ENCODER key=value ...`` takes.

    Attributes:
        bank: whose images vote: "train", "test" (of the data set), or a folder with a folder for
            each class.
        queries: whose images are classified, as for ``bank``. An image that is in both is never
            its own neighbour.
        k: numbers of neighbours; by default 1, 5, 10, 20, 50, 100, 200, as far as the bank goes.
        temperature: of the weights exp(cosine / temperature), by default 0.07.
        distance: cosine, euclidean (with the weights 1 / distance).
        memory_mib: what the search may take beside the features; by default 128 on a CPU, 1024 on a
            GPU.
    """

    bank: str = setting("train", text)
    queries: str = setting("test", text)
    k: list[int] | None = setting(None, optional(each(integer(1))), listed=True, commas=True)
    temperature: list[float] | None = setting(
        None, optional(each(number(0, open_low=True))), listed=True, commas=True
    )
    distance: list[str] = setting(["cosine"], each(one_of(*DISTANCES)), listed=True, commas=True)
    memory_mib: float | None = setting(None, optional(number(0, open_low=True)))

    def __post_init__(self):
        if "cosine" in self.distance:
            self.temperature = self.temperature or [STANDARD_TEMPERATURE]
        elif self.temperature is not None:
            given = ",".join(f"{value:g}" for value in self.temperature)
            raise ValueError(
                f"temperature={given}: euclidean weights, 1 / distance, have none; leave it out, "
                "or set distance=cosine"
            )

    def neighbours(self, images: BankAndQueries) -> list[int]:
        """The numbers of neighbours, in order.

        Raises:
            ValueError: more than there are.
        """
        ks = self.k or [k for k in KS if k <= images.most] or [1]
        if max(ks) > images.most:
            left = " beside the query itself" if images.own is not None else ""
            raise ValueError(
                f"k={max(ks)}: more neighbours than the bank has images{left} ({images.most:,})"
            )
        return ks
