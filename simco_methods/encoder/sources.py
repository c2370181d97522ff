"""What a file says of an encoder: weights, and a card or the configuration of its training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from simco_methods.checkpoints import CHECKPOINTS, checkpoint_in, configuration, read_file
from simco_methods.config.checks import as_list
from simco_methods.encoder.card import Card

# Programs, which can be run but hold no weights by their names.
_PROGRAMS = (".onnx", ".pt2", ".torchscript")


@dataclass
class Source:
    """What a file holds.

    Attributes:
        path: of the file.
        state: all tensors in it, by their names; those of nested mappings by names with dots.
        card: of an exported file.
        cfg: the configuration of the training, in today's keys; empty if it is not known.
        facts: fields of a card that the checkpoint tells.
    """

    path: Path
    state: Mapping[str, Tensor]
    card: Card | None = None
    cfg: DictConfig = field(default_factory=lambda: OmegaConf.create({}))
    facts: dict[str, Any] = field(default_factory=dict)


def read_source(source: Path, trusted: bool) -> Source:
    """Reads a file, or the one that a folder is about.

    Args:
        source: as of :func:`~simco_methods.encoder.load_encoder`.
        trusted: also read a checkpoint that holds more than plain values.

    Raises:
        FileNotFoundError: nothing there, or a folder without a checkpoint.
        ValueError: what cannot be read, or holds no weights; a folder that holds several.
    """
    path = checkpoint_in(source) if source.is_dir() else source
    if path.suffix in _PROGRAMS:
        raise ValueError(
            f"{path} is a program, whose weights cannot be taken out; name the .safetensors or "
            ".pth file that was exported with it, or the checkpoint that it is of"
        )
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    content = read_file(path, trusted)
    state = _tensors(content)
    if not state or isinstance(content, Tensor):
        raise ValueError(f"{path} holds no weights (no mapping of names to tensors)")
    card = _card_beside(path)
    if card is not None or not isinstance(content, Mapping) or "state_dict" not in content:
        return Source(path, state, card)
    cfg = configuration(path, content)
    if not isinstance(cfg, DictConfig):
        raise ValueError(f"{path.with_name('args.json')} is no configuration of a training run")
    return Source(path, state, None, _todays_keys(cfg), _facts(path, content))


def _read_safetensors(path: Path) -> Source:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}
            within = (file.metadata() or {}).get("simco_methods")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error})") from error
    if not state:
        raise ValueError(f"{path} holds no weights")
    card = Card.from_json(within, f"the card in {path}") if within else _card_beside(path)
    return Source(path, state, card)


def _card_beside(path: Path) -> Card | None:
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return None
    text = beside.read_text(encoding="utf-8", errors="replace")
    try:
        if "format" not in json.loads(text):
            return None  # somebody else's file of that name
    except (ValueError, TypeError):
        pass
    return Card.from_json(text, beside)


def _tensors(content: Any, prefix: str = "") -> dict[str, Tensor]:
    if isinstance(content, nn.Module):  # of a file that is trusted
        content = content.state_dict()
    if isinstance(content, Tensor):
        return {prefix[:-1]: content}
    if not isinstance(content, Mapping):
        return {}
    found: dict[str, Tensor] = {}
    for key, value in content.items():
        found |= _tensors(value, f"{prefix}{key}.")
    return found


# ---- of a checkpoint -----------------------------------------------------------------------------


def _todays_keys(cfg: DictConfig) -> DictConfig:
    """Older versions of solo-learn, the authors' code among them, leave flat arguments."""
    name = cfg.get("backbone") or cfg.get("encoder")
    if not isinstance(name, str):
        return cfg
    size = as_list(cfg.get("crop_size"))[0]
    kwargs = cfg.get("backbone_args") or {}
    own = ("cifar", "zero_init_residual")  # of those, what torchvision's do not take or keep
    return OmegaConf.merge(
        {k: v for k, v in cfg.items() if k not in ("backbone", "encoder")},
        {
            "backbone": {
                "name": name,
                "kwargs": {k: v for k, v in kwargs.items() if k not in own},
            },
            "data": {"dataset": cfg.get("dataset")},
            "augmentations": [{"crop_size": size}] if isinstance(size, int) else None,
        },
    )


def _facts(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    ours = content.get("simco_methods") or {}
    facts: dict[str, Any] = {"classes": ours.get("classes") or []}
    if isinstance(content.get("global_step"), int):
        facts["steps"] = content["global_step"]
    if "PretrainData" in content:  # which also knows of an epoch that is not whole
        facts["epochs"] = content["PretrainData"]["next_epoch"]
    elif isinstance(content.get("epoch"), int):
        facts["epochs"] = content["epoch"] + 1
    path = path.resolve()
    summary = path.parent.parent / "summary.json"
    if path.name == "last.ckpt" and path.parent.name == CHECKPOINTS and summary.is_file():
        try:
            said = json.loads(summary.read_text(encoding="utf-8"))
            named = {**said.get("last_epoch", {}), **said}
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{summary} is no summary of a run: {error}") from error
        facts["accuracies"] = {
            k: v for k, v in named.items() if "acc" in k and isinstance(v, float)
        }
        facts["versions"] = said.get("versions", {})
    return facts
