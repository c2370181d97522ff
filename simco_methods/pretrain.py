"""``simco-pretrain``: pretrains a method, with or without solo-learn.

simco-pretrain --config-name digits/simco
simco-pretrain --config-name cifar10/mocov2 data.train_path=DIR data.val_path=DIR seed=6
simco-pretrain -m --config-name digits/simco method_kwargs.tau_beta=0.1,1,10
"""

from __future__ import annotations

import importlib.resources
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from simco_methods.choice import check_host
from simco_methods.overrides import (
    GROUPS,
    accept_every_key,
    check_arguments,
    composing_fault,
)

_failed: list[str] = []  # jobs of a sweep


@hydra.main(version_base="1.3", config_path="pkg://solo_configs", config_name=None)
def _hydra_main(cfg: DictConfig) -> None:
    from simco_methods.runner.stopping import RunStopped  # seconds of loading
    from simco_methods.runner.train import prepare

    try:
        run = prepare(cfg)
    except (ValueError, OSError) as error:  # the user's to mend, before anything is trained
        _fail(error)
        return
    if not isinstance(run, Path):
        try:
            run.fit()
        except RunStopped as error:
            _fail(error)


def _fail(error: Exception) -> None:
    """Says why without a traceback, and ends; the other jobs of a sweep go on."""
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        sys.exit(f"simco-pretrain: {error}")
    print(f"simco-pretrain: {error}", file=sys.stderr)
    _failed.append(", ".join(HydraConfig.get().overrides.task))


def _usage() -> str:
    root = importlib.resources.files("solo_configs")
    leaves = {
        folder.name: sorted(f.name.removesuffix(".yaml") for f in folder.iterdir())
        for folder in root.iterdir()
        if folder.is_dir()
        and folder.name[0].isalpha()
        and folder.name not in (*GROUPS, "tables", "hydra")
    }
    own = {name for found in leaves.values() for name in found} - {"baselines", "linear"}
    with_baselines = sorted(name for name, found in leaves.items() if "baselines" in found)
    baselines = sorted(
        f.name.removesuffix(".yaml") for f in (root / "contrast/baselines").iterdir()
    )
    return (
        f"{__doc__}\nConfigs: {{{','.join(sorted(leaves))}}}/{{{','.join(sorted(own))}}}\n"
        f"With solo-learn: {{{','.join(with_baselines)}}}/baselines/{{{','.join(baselines)}}}\n"
        "The README lists the keys; --hydra-help shows Hydra's own options."
    )


def main() -> None:
    """Entry point."""
    options = ("--config-name", "-cn", "--hydra-help", "--version")
    if not any(argument.startswith(options) for argument in sys.argv[1:]):
        sys.exit(_usage())
    check_host("simco-pretrain")
    given = sys.argv[1:]
    try:
        check_arguments(given)
    except ValueError as error:
        sys.exit(f"simco-pretrain: {error}")
    sys.argv[1:] = accept_every_key(given)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # its errors as they are, to be said in a line
    try:
        _hydra_main()
    except KeyboardInterrupt as interrupt:
        from simco_methods.runner.rank import process_rank

        if process_rank() == 0:
            print(str(interrupt) or "interrupted", file=sys.stderr)
        sys.exit(getattr(interrupt, "code", 130))
    except Exception as error:
        fault = composing_fault(error, given, _hydra_main.__name__)
        if fault is None:
            raise
        sys.exit(f"simco-pretrain: {fault}")
    if _failed:
        sys.exit(f"simco-pretrain: {len(_failed)} job(s) failed:\n  " + "\n  ".join(_failed))


if __name__ == "__main__":
    main()
