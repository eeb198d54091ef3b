"""Which generator this is: kernels of one stencil may differ from one to the next."""

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["generator_version"]

ROOM = Path(__file__).parent


@cache
def generator_version() -> str:
    """A digest of all files of this room, templates and modules: the same for the same text."""
    digest = hashlib.sha256()
    for path in sorted(ROOM.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(ROOM)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
