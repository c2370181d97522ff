"""The runner's config: which keys there are, what they allow, and what they are turned into."""

from simco_methods.config.method import refusals_named
from simco_methods.config.parse import complete, digest, fingerprint, identity, parse
from simco_methods.config.schema import check_config
from simco_methods.config.spelling import runs_on_cpu

__all__ = [
    "check_config",
    "complete",
    "digest",
    "fingerprint",
    "identity",
    "parse",
    "refusals_named",
    "runs_on_cpu",
]
