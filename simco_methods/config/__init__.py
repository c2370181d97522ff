"""The runner's config: which keys there are, what they allow, and what they are turned into."""

from simco_methods.config.parse import complete, fingerprint, identity, parse, runs_on_cpu
from simco_methods.config.schema import check_config

__all__ = ["check_config", "complete", "fingerprint", "identity", "parse", "runs_on_cpu"]
