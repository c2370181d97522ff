"""One run of a table, in a process of its own: ``python -m simco_methods.tables.cell FOLDER``."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from simco_methods.files import lock


def main() -> None:
    """Trains what the folder's ``cell.yaml`` says, then makes the analyses wanted of it."""
    folder = Path(sys.argv[1])
    cfg = OmegaConf.load(folder / "cell.yaml")
    _take_gpus(cfg, Path(tempfile.gettempdir()) / f"simco-gpus-{os.getuid()}")

    from simco_methods.analysis.settings import Settings
    from simco_methods.analyze import analyze
    from simco_methods.config.parse import complete
    from simco_methods.runner.folder import RunFolder
    from simco_methods.runner.rank import process_rank
    from simco_methods.runner.stopping import RunStopped
    from simco_methods.runner.train import prepare
    from simco_methods.settings import parse_settings

    try:
        run = prepare(cfg)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(" ".join(str(error).split()))  # the user's to mend: on the one line that is shown
    try:
        if not isinstance(run, Path):
            run.fit()
        if process_rank() > 0:
            return
        checkpoint = RunFolder(complete(cfg)).last_checkpoint
        for file in sorted(folder.glob("analyses/*/wanted.json")):
            wanted = json.loads(file.read_text(encoding="utf-8"))
            if not (file.parent / wanted["file"]).exists():
                settings = parse_settings("simco-analyze", Settings, wanted["arguments"])
                settings.out = str(file.parent)
                analyze(checkpoint, settings)
    except RunStopped as stop:
        sys.exit(str(stop))
    except KeyboardInterrupt as interrupt:
        print(interrupt)
        sys.exit(130)


def _take_gpus(cfg: DictConfig, locks: Path) -> None:
    """Of several GPUs, as many as the run wants, until this process ends.

    Those that no other run has; with more runs than GPUs, those that the fewest have.
    """
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]
    if not str(cfg.devices).isdigit() or cfg.accelerator == "cpu":
        return  # the user names them
    wanted = int(cfg.devices)
    if not 0 < wanted < len(visible):
        return
    for shared in itertools.count():
        taken: list[str] = []
        descriptors: list[int] = []
        for gpu in visible:
            descriptor = lock(locks / f"{gpu.strip().replace('/', '-')}-{shared}")
            if descriptor is not None:
                taken.append(gpu.strip())
                descriptors.append(descriptor)
            if len(taken) == wanted:
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(taken)
                return
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main()
