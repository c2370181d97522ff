"""``simco-analyze``: what the dictionary does, measured on a checkpoint.

simco-analyze runs/mocov2-digits/1a2b3c4d
simco-analyze CKPT analysis=penalty,hardness temperatures=[0.05,0.1,1] sizes=[64,256,1024]
simco-analyze CKPT analysis=consistency earlier=[EARLIER_CKPT,...] out=FOLDER
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simco_methods.command import run_command

if TYPE_CHECKING:
    from simco_methods.analysis.samples import Samples
    from simco_methods.analysis.settings import Settings


def analyze(checkpoint: str | Path, settings: Settings) -> Path:
    """Runs the analyses that the settings ask for; returns the folder of the results.

    Args:
        checkpoint: of the pack's methods or of solo-learn's, with a backbone and a projector; or
            a run's folder.
        settings: what to measure on what.

    Raises:
        ValueError, FileNotFoundError: settings, a checkpoint or data that do not fit, by name.
    """
    from simco_methods.analysis import ANALYSES
    from simco_methods.analysis.encoder import load_checkpoint
    from simco_methods.analysis.report import write_report
    from simco_methods.analysis.samples import Samples
    from simco_methods.checkpoints import checkpoint_in
    from simco_methods.progress import Progress

    checkpoint = Path(checkpoint)
    if checkpoint.is_dir():
        checkpoint = checkpoint_in(checkpoint)
    loaded = load_checkpoint(checkpoint, settings.config, settings.trusted)
    samples = Samples(loaded, settings)
    wanted = [settings.analysis] if isinstance(settings.analysis, str) else settings.analysis
    names = list(ANALYSES) if "all" in wanted else wanted
    left_out: dict[str, str] = {}
    for name in names:
        missing = getattr(ANALYSES[name], "possible", lambda samples: None)(samples)
        if missing and "all" not in wanted:
            raise ValueError(missing)
        if missing:
            left_out[name] = missing
    facts = _facts(samples)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    print("".join(f"note: {note}\n" for note in samples.images.notes), end="", flush=True)
    folder = settings.out_folder(checkpoint)
    findings = []
    for name in names:
        if name in left_out:
            print(f"{name}: not made: {left_out[name]}", flush=True)
            continue
        try:
            with Progress(f"measuring: {name}"):
                finding = ANALYSES[name].run(samples)
        except ValueError as error:
            if "all" not in wanted or not findings:
                raise
            left_out[name] = str(error)  # the others are not lost for it
            print(f"{name}: not made: {error}", flush=True)
            continue
        findings.append((finding, finding.write(folder)))
        print(f"{name}: {folder / f'{name}.png'}", flush=True)
    reasons = {ANALYSES[name].TITLE: reason for name, reason in left_out.items()}
    write_report(folder / "report.html", facts, findings, reasons)
    print(f"all of it: {folder / 'report.html'}", flush=True)
    return folder


def _facts(samples: Samples) -> dict[str, Any]:
    from simco_methods.machine import hardware, in_words, versions

    checkpoint, settings = samples.checkpoint, samples.settings
    cfg = checkpoint.cfg
    source = "momentum encoder" if checkpoint.has_momentum else "encoder"
    return {
        "checkpoint": checkpoint.path,
        "method": f"{cfg.get('method')}, {cfg.backbone.name}, after {checkpoint.epoch} epochs "
        f"({checkpoint.step} steps)",
        "data": f"{cfg.data.dataset}, {settings.split}, {len(samples.images)} images",
        "anchors": f"{samples.batches} batches of {samples.group}",
        "dictionary": f"up to {samples.sizes[-1]} keys of "
        + (f"the {source}" if settings.keys == "encoder" else "the checkpoint's queue"),
        "seed": settings.seed,
        "machine": hardware(samples.device, 1),
        "versions": in_words(versions()),
    }


def main() -> None:
    """Entry point."""
    run_command(
        "simco-analyze",
        __doc__,
        "simco_methods.analysis.settings:Settings",
        "simco_methods.analyze:analyze",
        ("CKPT",),
    )


if __name__ == "__main__":
    main()
