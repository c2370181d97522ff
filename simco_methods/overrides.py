"""Overrides as people write them, for Hydra."""

from __future__ import annotations

from pathlib import Path

GROUPS = ("recipe", "dataset", "contrast", "augmentations")  # of solo_configs


def accept_every_key(arguments: list[str]) -> list[str]:
    """Lets ``key=value`` set keys that the YAML does not mention.

    Hydra would refuse them with its own message; this way a valid key works and a misspelt one
    reaches the check that names the nearest valid key. Config groups and Hydra's own keys stay.
    """
    accepted: list[str] = []
    for argument in arguments:
        key = argument.split("=", 1)[0]
        plain = "=" in argument and key[:1].isalpha() and "@" not in key
        if plain and key.split("/")[0] not in GROUPS and key.split(".")[0] != "hydra":
            argument = f"++{argument}"
        elif accepted and accepted[-1] in ("--config-path", "-cp") and Path(argument).is_dir():
            argument = str(Path(argument).resolve())  # Hydra would look beside this file
        accepted.append(argument)
    return accepted
