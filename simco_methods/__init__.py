"""SimCo, SimMoCo, MoCo v2 and the dual-temperature loss, for solo-learn or without it.

The losses are importable on their own (``from simco_methods.losses import dual_temperature_loss``);
the methods are in :mod:`simco_methods.methods`, the trainer in :mod:`simco_methods.pretrain`.
"""

__version__ = "0.1.0"
