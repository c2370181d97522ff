"""``simco-pretrain``: pretrains a method, with or without solo-learn.

simco-pretrain --config-name digits/simco
simco-pretrain --config-name cifar10/mocov2 data.train_path=DIR data.val_path=DIR seed=6
simco-pretrain -m --config-name digits/simco method_kwargs.tau_beta=0.1,1,10
"""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from simco_methods.runner.train import prepare


@hydra.main(version_base="1.3", config_path="pkg://solo_configs", config_name=None)
def _hydra_main(cfg: DictConfig) -> None:
    try:
        run = prepare(cfg)
    except (ValueError, FileNotFoundError) as error:
        # The user's to mend: said without a traceback, before anything is written.
        sys.exit(f"simco-pretrain: {error}")
    if not isinstance(run, Path):
        run.fit()


def accept_every_key(arguments: list[str]) -> list[str]:
    """Lets ``key=value`` set keys that the YAML does not mention.

    Hydra would refuse them with its own message; this way a valid key works and a misspelt one
    reaches the check that names the nearest valid key. Config groups and Hydra's own keys stay.
    """
    root = importlib.resources.files("solo_configs")
    groups = {entry.name for entry in root.iterdir() if entry.is_dir()}
    accepted = []
    for argument in arguments:
        key = argument.split("=", 1)[0]
        plain = "=" in argument and key[:1].isalpha() and "@" not in key
        if plain and key not in groups and key.split(".")[0] != "hydra":
            argument = f"++{argument}"
        accepted.append(argument)
    return accepted


def main() -> None:
    """Entry point."""
    sys.argv[1:] = accept_every_key(sys.argv[1:])
    try:
        _hydra_main()
    except KeyboardInterrupt as interrupt:
        print(interrupt, file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
