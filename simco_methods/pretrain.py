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

from simco_methods import __version__
from simco_methods.choice import check_host
from simco_methods.command import HELP
from simco_methods.overrides import GROUPS, Arguments, check_arguments, composing_fault
from simco_methods.runner.processes import check_environment, end_with_launcher

_failed: list[str] = []  # jobs of a sweep


@hydra.main(version_base="1.3", config_path="pkg://solo_configs", config_name=None)
def _hydra_main(cfg: DictConfig) -> None:
    from simco_methods.progress import LINE_SECONDS, Progress

    with Progress("loading PyTorch and Lightning", patience=LINE_SECONDS):
        from simco_methods.runner.stopping import RunStopped
        from simco_methods.runner.train import prepare

    try:
        run = prepare(cfg)
    except (ValueError, OSError, RunStopped) as error:
        _fail(error)  # the user's to mend, before anything is trained
        return
    if not isinstance(run, Path):
        try:
            run.fit()
        except RunStopped as error:
            # Other processes may not have stopped, and would train this job with the next one here.
            _fail(error, last=run.world_size > 1)


def _fail(error: Exception, last: bool = False) -> None:
    """Says why without a traceback, and ends; the other jobs of a sweep go on unless ``last``."""
    if last or HydraConfig.get().mode != RunMode.MULTIRUN:
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
    examples = __doc__.split("\n", 2)[2].strip("\n")
    return (
        "usage: simco-pretrain --config-name CONFIG [key=value ...] [option ...]\n\n"
        f"{examples}\n\nConfigs:\n"
        f"    {{{','.join(sorted(leaves))}}}/{{{','.join(sorted(own))}}}\n"
        f"    with solo-learn: {{{','.join(with_baselines)}}}/baselines/{{{','.join(baselines)}}}\n"
        f"{_KEYS}"
    )


_KEYS = """
Keys, of many (solo_configs/README.md says what they mean):
    data.train_path, data.val_path, data.labels, data.val_labels, data.test_share
    data.no_labels, data.on_error, data.download
    name, output_dir: the run's folder, by default runs/NAME/FINGERPRINT
    max_epochs, seed, optimizer.batch_size, optimizer.lr, backbone.name, augmentations
    method_kwargs.tau_alpha, .tau_beta, .tau, .queue_size, .symmetric: of the method
    accelerator, devices, precision, performance.compile, data.num_workers
    knn_eval.enabled, checkpoint.frequency, resume_from_checkpoint, wandb.enabled, analysis.enabled
Names and paths are taken as they are typed: data.train_path='my photos (2)'.

Options:
    -m: a sweep: a run for each of the values between commas; name='"a,b"' is one value
    --config-path DIR, --config-dir DIR: where there are more configs
    --cfg job: prints the config and ends; --hydra-help: Hydra's other options
    --help, --version"""


def main() -> None:
    """Entry point."""
    end_with_launcher()
    given = sys.argv[1:]
    if {*HELP} & {*given}:
        print(_usage())
        return
    if "--version" in given:
        print("simco-pretrain", __version__)
        return
    arguments = Arguments.read(given)
    if not {"--config-name", "-cn", "--hydra-help"} & {name for name, _ in arguments.options}:
        missing = "simco-pretrain: --config-name is missing\n" if given else ""
        print(f"{missing}{_usage()}", file=sys.stderr)
        sys.exit(2)
    try:
        check_environment()
        check_arguments(arguments)
    except ValueError as error:
        sys.exit(f"simco-pretrain: {error}")
    check_host("simco-pretrain")
    sys.argv[1:] = arguments.for_hydra()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # its errors as they are, to be said in a line
    try:
        _hydra_main()
    except KeyboardInterrupt as interrupt:
        from simco_methods.runner.rank import process_rank

        if process_rank() == 0:
            print(str(interrupt) or "interrupted", file=sys.stderr)
        sys.exit(getattr(interrupt, "code", 130))
    except Exception as error:
        fault = composing_fault(error, arguments, _hydra_main.__name__)
        if fault is None:
            raise
        sys.exit(f"simco-pretrain: {fault}")
    if _failed:
        sys.exit(f"simco-pretrain: {len(_failed)} job(s) failed:\n  " + "\n  ".join(_failed))


if __name__ == "__main__":
    main()
