"""``simco-export``: a trained encoder for plain torchvision or timm, ONNX, TorchScript, solo-learn.

simco-export runs/simco-cifar10/1a2b3c4d
simco-export ENCODER format=safetensors,pth,onnx naming=timm out=FOLDER
simco-export ENCODER out=FOLDER/resnet18.pth
simco-export resnet50.pth backbone.name=resnet50 format=solo-learn
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simco_methods.command import run_command


def export(source: str | Path, settings: Any) -> Path:
    """Exports an encoder and says how to load it; returns the folder.

    Args:
        source: as of :func:`~simco_methods.load_encoder`.
        settings: :class:`~simco_methods.encoder.export_settings.ExportSettings`.

    Raises:
        ImportError, OSError, ValueError: see :func:`~simco_methods.load_encoder` and
            :func:`~simco_methods.encoder.writing.export_encoder`.
    """
    from simco_methods.encoder.formats import FORMATS
    from simco_methods.encoder.naming import transform_lines
    from simco_methods.encoder.writing import export_encoder

    folder, stem, formats = settings.target(source)
    for name in formats:
        FORMATS[name].check()  # before anything is read
    encoder = settings.load(source)
    card = encoder.card
    print(f"{source}: {card.backbone}, {encoder.features} features, {_seen(card)}", flush=True)
    written = export_encoder(encoder, folder, stem, formats, settings.naming)
    for file in written:
        checked = "not compared: onnxruntime is not installed"
        if file.difference is not None:
            checked = (
                f"loaded again, its features differ by at most {file.difference:.2g} (the largest "
                f"is {file.scale:.2g})"
            )
        print(f"{file.path}: {file.size / 1e6:.1f} MB; {checked}")
    print(f"{folder / stem}.json: what it is, and how to load it\n")
    print("\n".join(written[0].load))
    if formats[0] != "solo-learn":
        print("\n".join(["", *transform_lines(card)]))
    return folder


def _seen(card: Any) -> str:
    trained = f"trained by {card.method} on {card.dataset}" if card.method else "training unknown"
    return f"images of {card.preprocessing.size} pixels, {trained}"


def main() -> None:
    """Entry point."""
    run_command(
        "simco-export",
        __doc__,
        "simco_methods.encoder.export_settings:ExportSettings",
        "simco_methods.export:export",
    )


if __name__ == "__main__":
    main()
