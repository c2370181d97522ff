"""Progress as it is read from the folders of the cells."""

import json
import os

from omegaconf import OmegaConf

from simco_methods.tables.cells import Cell, Run
from simco_methods.tables.watch import Watch


def test_a_line_for_every_change(tmp_path, capsys):
    cells = []
    for name in ("aa", "bb", "cc"):
        run = Run(name, tmp_path / name, OmegaConf.create({"max_epochs": 4}))
        run.folder.mkdir()
        cells.append(Cell("table5_batch_size", "SimCo", name, 5, run))
    good, bad, waiting = (cell.run for cell in cells)
    waiting.log.write_text("of yesterday")
    with Watch(cells) as watch:
        watch._look()
        assert capsys.readouterr().out == ""
        good.log.write_text("begun")
        watch._look()
        assert capsys.readouterr().out == f"table5: SimCo, aa, seed 5 (aa): started, {good.log}\n"
        (good.folder / "metrics.csv").write_text("epoch\n0\n1\n")
        watch._look()
        assert capsys.readouterr().out == ""
        summary = {"seconds": 61.2, "last_epoch": {"val_acc1": 58.35}}
        (good.folder / "summary.json").write_text(json.dumps(summary))
        bad.log.write_text("begun")
        bad.failure.write_text("no memory\n")
        watch._look()
        out = capsys.readouterr().out.splitlines()
        assert out[0] == (
            "[1/3] table5: SimCo, aa, seed 5 (aa): finished in 61 s, online accuracy 58.35 %"
        )
        assert out[2].startswith("[2/3] table5: SimCo, bb, seed 5 (bb): failed: no memory (all of")
        os.utime(waiting.log, (1, 1))  # begun again
        watch._look()
        assert "cc, seed 5 (cc): started" in capsys.readouterr().out
