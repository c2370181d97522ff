"""The built-in host: what the methods need of solo-learn, without solo-learn."""

from simco_methods.host.builtin.base import BaseMethod, BaseMomentumMethod

__all__ = ["BaseMethod", "BaseMomentumMethod"]
