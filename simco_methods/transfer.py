"""``simco-transfer``: kNN and linear accuracy of an encoder on every data set found, in one table.

simco-transfer runs/simco-cifar10/1a2b3c4d data=datasets
simco-transfer ENCODER data=datasets datasets=cifar100,flowers epochs=30
simco-transfer ENCODER data=datasets features=streamed untrained=false
"""

from __future__ import annotations

from typing import Any

from simco_methods.command import run_command


def _settings() -> type:
    from simco_methods.evaluation.transfer_settings import TransferSettings

    return TransferSettings


def _run(*given: Any) -> None:
    from simco_methods.evaluation.transfer import transfer

    transfer(*given)


def main() -> None:
    """Entry point."""
    run_command("simco-transfer", __doc__, _settings, _run)


if __name__ == "__main__":
    main()
