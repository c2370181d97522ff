"""Seeds for draws that are functions of what is drawn, not of what was drawn before."""

from __future__ import annotations

import hashlib


def derived_seed(*numbers: int) -> int:
    """A 63-bit seed from any tuple of whole numbers; unlike tuples give unrelated seeds."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
