"""``simco-knn``: kNN accuracy of an encoder for a grid of k, temperatures and distances.

simco-knn runs/simco-digits/1a2b3c4d
simco-knn ENCODER data.dataset=cifar10 data.train_path=datasets data.val_path=datasets
simco-knn ENCODER bank=FOLDER queries=FOLDER k=5,20 temperature=0.05,0.07,0.1
simco-knn ENCODER queries=train distance=cosine,euclidean memory_mib=64
"""

from __future__ import annotations

from simco_methods.command import run_command


def main() -> None:
    """Entry point."""
    run_command(
        "simco-knn",
        __doc__,
        "simco_methods.evaluation.knn_settings:KNNSettings",
        "simco_methods.evaluation.knn:knn",
    )


if __name__ == "__main__":
    main()
