"""``simco-transfer``: kNN and linear accuracy of an encoder on every data set found, in one table.

simco-transfer runs/simco-cifar10/1a2b3c4d data=datasets
simco-transfer ENCODER data=datasets datasets=cifar100,flowers epochs=30
simco-transfer ENCODER data=datasets features=streamed untrained=false
"""

from __future__ import annotations

from simco_methods.command import run_command


def main() -> None:
    """Entry point."""
    run_command(
        "simco-transfer",
        __doc__,
        "simco_methods.evaluation.transfer_settings:TransferSettings",
        "simco_methods.evaluation.transfer:transfer",
    )


if __name__ == "__main__":
    main()
