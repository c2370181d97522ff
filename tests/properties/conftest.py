"""How many inputs are drawn: few and always the same, or with HYPOTHESIS_PROFILE=slow many anew."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,  # of a busy machine
    "database": None,  # a failure prints what repeats it; nothing is left in the checkout
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile(
    "suite", max_examples=60, stateful_step_count=20, derandomize=True, **_COMMON
)
settings.register_profile("slow", max_examples=500, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
