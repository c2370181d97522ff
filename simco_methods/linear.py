"""``simco-linear``: a linear classifier on an encoder's features, or the whole network finetuned.

simco-linear runs/simco-cifar10/1a2b3c4d
simco-linear CKPT features=cached views=4 epochs=50 optimizer=adamw
simco-linear CKPT mode=finetune fraction=0.1 layer_decay=0.75 mixup=0.2
simco-linear resnet50.pth backbone.name=resnet50 data.train_path=photos test_share=0.2
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simco_methods.command import run_command
from simco_methods.measures import has_top5, in_percent, name_of

if TYPE_CHECKING:
    from simco_methods.encoder import Encoder
    from simco_methods.evaluation.linear_settings import LinearSettings
    from simco_methods.evaluation.sides import Sides


# Of a mode, what its measures begin with.
_KIND = {"frozen": "linear", "finetune": "finetune"}


def linear(source: str | Path, settings: LinearSettings) -> dict[str, Any]:
    """Evaluates an encoder by a classifier that is trained on it; returns the summary.

    Args:
        source: of the encoder, see :func:`~simco_methods.encoder.load_encoder`.
        settings: how, and on what.

    Raises:
        ValueError, FileNotFoundError: settings, an encoder or data that do not fit, by name.
    """
    from simco_methods.data.workers import end_workers
    from simco_methods.evaluation.accuracy import chance_note
    from simco_methods.evaluation.finetune import finetune
    from simco_methods.evaluation.linear import probe
    from simco_methods.evaluation.linear_folder import LinearFolder
    from simco_methods.evaluation.linear_training import batch_size

    settings.check()
    encoder = settings.load(str(source))
    sides = settings.sides(encoder)
    settings = settings.completed(sides.name)
    frozen = settings.mode == "frozen"
    kind = "linear" if frozen else "finetune"
    part = "" if settings.fraction is None else f"-{settings.fraction:g}"
    path = settings.out_folder(source, kind + part)
    folder = LinearFolder(path, encoder, sides, settings)
    if folder.finished:
        print(f"{path} is finished: it is not run again", flush=True)
        print(_closing(folder.finished, path), flush=True)
        return folder.finished
    size = batch_size(settings, sides.train)
    print("\n".join(_introduction(source, encoder, sides, settings, size)), flush=True)
    try:
        result = (probe if frozen else finetune)(encoder, sides, settings, folder.state)
        summary = folder.write(result, size)
    except KeyboardInterrupt:
        if folder.state.path.exists():
            print(f"interrupted; the same command goes on from {folder.state.path}", flush=True)
        raise
    finally:
        folder.state.leave()
        end_workers()
    if len(result.rows) > 1:
        print(f"\n{_table(result.rows)}")
    print(_closing(summary, path), flush=True)
    scores = result.scores
    name = name_of(f"{_KIND[summary['mode']]}_acc1")
    for note in chance_note(name, scores.acc1, len(sides.classes), scores.confusion):
        print(f"note: {note}", flush=True)
    return summary


def _introduction(
    source: str | Path, encoder: Encoder, sides: Sides, settings: LinearSettings, size: int
) -> list[str]:
    card = encoder.card
    trained = [card.method, card.dataset, f"{card.epochs} epochs" if card.epochs else None]
    known = ", ".join(filter(None, trained)) or "training unknown"
    steps = len(sides.train) // size
    rates = ", ".join(f"{lr * size / 256:.3g}" for lr in settings.lr)
    decays = ", ".join(f"{decay:g}" for decay in settings.weight_decay)
    lines = [
        f"encoder: {source}: {card.backbone}, {encoder.features} features ({known})",
        f"data: {sides.name}, {len(sides.train):,} images to train on, {len(sides.test):,} to test "
        f"on, {len(sides.classes)} classes, {card.preprocessing.size} pixels",
        *(f"note: {note}" for note in sides.notes),
        f"training: {settings.mode}, {settings.optimizer}, {settings.epochs} epochs of {steps} "
        f"batches of {size}, on {encoder.device}",
        f"learning rate: {rates} (lr x {size}/256), weight decay: {decays}",
    ]
    if len(settings.grid) > 1:
        lines.append(
            f"choice: by {settings.holdout:g} of the training images, which a second set of "
            "classifiers does not see; test accuracies are of those trained on all"
        )
    return lines


def _table(rows: Sequence[dict[str, Any]]) -> str:
    from simco_methods.page import markdown_table

    heads = {"held_acc1": "held-out top-1", "acc1": "test top-1", "acc5": "test top-5"}
    there = [key for key in heads if key in rows[0]]
    lines = [["lr", "weight decay", *(heads[key] for key in there), ""]]
    for row in rows:
        accuracies = (f"{row[key]:.2f} %" for key in there)
        mark = "chosen" if row["chosen"] else ""
        lines.append([f"{row['lr']:g}", f"{row['weight_decay']:g}", *accuracies, mark])
    return markdown_table(lines)


def _closing(summary: dict[str, Any], path: Path) -> str:
    chosen, kind = summary["chosen"], _KIND[summary["mode"]]
    names = ["acc1", "acc5"] if has_top5(len(summary["per_class"])) else ["acc1"]
    accuracies = in_percent({f"{kind}_{name}": summary[name] for name in names})
    return (
        f"{', '.join(accuracies)}, mean of classes {summary['mean_per_class']:.2f} % "
        f"(lr={chosen['lr']:g} weight_decay={chosen['weight_decay']:g}, "
        f"{summary['test_images']:,} test images, {summary['seconds']:.0f} s): {path}"
    )


def main() -> None:
    """Entry point."""
    run_command(
        "simco-linear",
        __doc__,
        "simco_methods.evaluation.linear_settings:LinearSettings",
        "simco_methods.linear:linear",
    )


if __name__ == "__main__":
    main()
