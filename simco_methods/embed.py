"""``simco-embed``: the features of a folder of images, and the nearest images of a query.

simco-embed runs/simco-cifar10/1a2b3c4d photos                          # features.npy, paths.csv
simco-embed resnet18.pth photos backbone.name=resnet18 format=parquet dtype=float16
simco-embed ENCODER photos query=cat.jpg neighbours=20                  # neighbours.png
"""

from __future__ import annotations

from simco_methods.command import run_command


def main() -> None:
    """Entry point."""
    run_command(
        "simco-embed",
        __doc__,
        "simco_methods.embedding.settings:EmbedSettings",
        "simco_methods.embedding.run:embed",
        ("ENCODER", "FOLDER"),
    )


if __name__ == "__main__":
    main()
