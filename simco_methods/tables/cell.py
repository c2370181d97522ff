"""One run of a table, in a process of its own: ``python -m simco_methods.tables.cell FOLDER``."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from simco_methods.tables.locks import lock


def main() -> None:
    """Trains what the folder's ``cell.yaml`` says, then makes the analyses wanted of it."""
    folder = Path(sys.argv[1])
    cfg = OmegaConf.load(folder / "cell.yaml")
    _take_a_gpu(cfg, folder.parents[1] / "gpus")

    from simco_methods.analyze import analyze
    from simco_methods.config import complete
    from simco_methods.runner.folder import RunFolder
    from simco_methods.runner.train import pretrain
    from simco_methods.runner.trainer import process_rank

    try:
        pretrain(cfg)
        if process_rank() > 0:
            return
        checkpoint = RunFolder(complete(cfg)).last_checkpoint
        for file in sorted(folder.glob("analyses/*/wanted.json")):
            wanted = json.loads(file.read_text(encoding="utf-8"))
            if not (file.parent / wanted["file"]).exists():
                analyze(checkpoint, [*wanted["arguments"], f"out={file.parent}"])
    except (ValueError, FileNotFoundError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt as interrupt:
        print(interrupt)
        sys.exit(130)


def _take_a_gpu(cfg: DictConfig, locks: Path) -> None:
    """Of several GPUs, one that no other cell of these tables has, until this process ends."""
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]
    if len(visible) < 2 or str(cfg.devices) != "1" or cfg.accelerator == "cpu":
        return
    for gpu in visible:
        if lock(locks / f"{platform.node()}-{gpu.strip()}") is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu.strip()
            return


if __name__ == "__main__":
    main()
