"""``simco-transfer``: kNN and linear accuracy of an encoder on every data set found, in one table.

simco-transfer runs/simco-cifar10/1a2b3c4d data=datasets
simco-transfer ENCODER data=datasets datasets=cifar100,flowers epochs=30
simco-transfer ENCODER data=datasets features=streamed untrained=false
"""

from __future__ import annotations

from typing import Any

from simco_methods.command import run_command


def _load() -> tuple[type, Any]:
    from simco_methods.evaluation.transfer import TransferSettings, transfer

    return TransferSettings, transfer


def main() -> None:
    """Entry point."""
    run_command("simco-transfer", __doc__, _load)


if __name__ == "__main__":
    main()
