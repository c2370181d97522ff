"""``simco-visualize``: an encoder on one page: map, neighbours, augmentations, training curves.

simco-visualize runs/simco-cifar10/1a2b3c4d runs=[runs/mocov2-cifar10/5e6f7a8b]
simco-visualize resnet18.pth backbone.name=resnet18 folder=photos query=cat.jpg
simco-visualize ENCODER data.dataset=custom data.train_path=photos method=tsne images=500
"""

from __future__ import annotations

from simco_methods.command import run_command


def main() -> None:
    """Entry point."""
    run_command(
        "simco-visualize",
        __doc__,
        "simco_methods.looking.settings:VisualizeSettings",
        "simco_methods.looking.run:visualize",
    )


if __name__ == "__main__":
    main()
