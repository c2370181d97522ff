"""The dictionary analyses, on any checkpoint and during training.

:data:`ANALYSES` maps a name to a module with ``run(samples) -> Finding``.
"""

from simco_methods.analysis import consistency, geometry, gradient, hardness, penalty

ANALYSES = {
    "penalty": penalty,
    "hardness": hardness,
    "consistency": consistency,
    "geometry": geometry,
    "gradient": gradient,
}

__all__ = ["ANALYSES"]
