"""The settings of ``simco-analyze``: what there is, what each may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.config.checks import (
    Check,
    as_list,
    each,
    flag,
    integer,
    number,
    one_of,
    optional,
    text,
)
from simco_methods.config.during import TEMPERATURES
from simco_methods.config.schema import odd_keys
from simco_methods.config.walk import nearest

# Of the checkpoint's own configuration: these go on to what reads them.
_CONFIG = ("data", "backbone", "augmentations")


@dataclass
class Settings:
    """What ``simco-analyze CKPT key=value ...`` takes.

    Attributes:
        analysis: "all", or names: penalty, hardness, consistency, geometry, gradient.
        out: folder to write to; by default beside the checkpoint, named ``<checkpoint>-analysis``.
        seed: of the views and of the choice of anchors.
        split: whose images: "train" or "val".
        anchors: anchors in a batch; by default the batch size of training, of one process.
        batches: batches of anchors; by default 8, or as many as take half of the images.
        temperatures: each finite and above 0.
        sizes: of the dictionary; by default powers of 4 from 64 and all keys at hand, at most
            65,536.
        keys: where the dictionary's keys are from: "encoder" (images that are no anchors, through
            the network of the keys) or "queue" (the checkpoint's own, among which there may be
            views of the anchors' images, as in training).
        passes: views of each image in the dictionary.
        earlier: earlier checkpoints of the same run, for the consistency of keys.
        device: "auto", "cpu", "cuda", "cuda:1" ...
        batch_size: images forwarded at once; changes nothing but memory.
        num_workers: processes that make the views; changes nothing but time.
        trusted: read a checkpoint that holds more than plain values.
        config: ``data.*``, ``backbone.*``, ``augmentations`` to set over the checkpoint's own.
    """

    analysis: Any = "all"
    out: str | None = None
    seed: int = 0
    split: str = "train"
    anchors: int | None = None
    batches: int | None = None
    temperatures: list[float] = field(default_factory=lambda: list(TEMPERATURES))
    sizes: list[int] | None = None
    keys: str = "encoder"
    passes: int = 1
    earlier: list[str] | None = None
    device: str = "auto"
    batch_size: int = 256
    num_workers: int = 2
    trusted: bool = False
    config: DictConfig = field(default_factory=lambda: OmegaConf.create({}))

    def out_folder(self, checkpoint: Path) -> Path:
        """Where the results go."""
        return Path(self.out or checkpoint.with_name(f"{checkpoint.stem}-analysis"))


def _checks(names: Sequence[str]) -> dict[str, Check]:
    return {
        "analysis": each(one_of("all", *names)),
        "out": optional(text),
        "seed": integer(0),
        "split": one_of("train", "val"),
        "anchors": optional(integer(2)),
        "batches": optional(integer(1)),
        "temperatures": each(number(0, open_low=True)),
        "sizes": optional(each(integer(2))),
        "keys": one_of("encoder", "queue"),
        "passes": integer(1),
        "earlier": optional(each(text)),
        "device": text,
        "batch_size": integer(1),
        "num_workers": integer(0),
        "trusted": flag,
    }


def _odd_override(key: str, value: Any) -> Iterator[str]:
    if key == "augmentations":
        if not isinstance(value, ListConfig):
            yield "augmentations must be given whole, as a list of views"
    elif not isinstance(value, DictConfig):
        yield f"{key}={value!r}: must be a mapping with keys of its own"
    else:
        yield from odd_keys(OmegaConf.create({key: value}))


def parse_settings(arguments: Sequence[str], names: Sequence[str]) -> Settings:
    """Reads ``key=value`` arguments.

    Args:
        arguments: in the notation of OmegaConf's dot lists.
        names: the analyses that there are.

    Raises:
        ValueError: everything that is wrong with them, a line each.
    """
    faults = [f"{a} is not of the form key=value" for a in arguments if "=" not in a[1:]]
    if faults:
        raise ValueError("\n".join(faults))
    try:
        given = OmegaConf.from_dotlist(list(arguments))
    except OmegaConfBaseException as error:
        raise ValueError(f"the settings cannot be read: {error}") from error
    checks = _checks(names)
    plain: dict[str, Any] = {}
    for key, value in given.items():
        if key in _CONFIG:
            faults += _odd_override(key, value)
            continue
        if key not in checks:
            near = nearest(key, {**checks, **dict.fromkeys(_CONFIG)})
            faults.append(
                f"{key} is no setting of simco-analyze"
                + (f"; did you mean {near}?" if near in checks else "")
                + f" It knows {', '.join([*checks, *(f'{name}.*' for name in _CONFIG)])}"
            )
            continue
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        if key == "analysis" and isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        allowed = checks[key](value)
        if allowed:
            faults.append(f"{key}={value!r}: must be {allowed}")
        if key in ("temperatures", "sizes", "earlier") and value is not None:
            value = as_list(value)
        plain[key] = list(dict.fromkeys(value)) if isinstance(value, list) else value
    if faults:
        raise ValueError("\n".join(faults))
    config = OmegaConf.create({key: given[key] for key in _CONFIG if key in given})
    return Settings(**plain, config=config)
