"""Seeds from what they are for, so that no seed depends on the order of the work."""

from __future__ import annotations

from hashlib import blake2b


def seed_of(*parts: object) -> int:
    """63-bit seed of (run seed, task, purpose, proposal, …, turn): equal parts give equal seeds anywhere."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1
