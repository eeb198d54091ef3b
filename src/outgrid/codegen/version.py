"""Which generator this is: kernels of one stencil may differ from one to the next."""

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["generator_version"]

ROOM = Path(__file__).parent
# Modules beside this room that shape kernels, or say what the tiles are that they run in.
BESIDE = ("stencil/alike.py", "stencil/contract.py", "plan/layout.py", "plan/tiling.py")


@cache
def generator_version() -> str:
    """A digest of all files of this room, templates and modules, and of those beside it.

    It is the same for the same text.
    """
    digest, package = hashlib.sha256(), ROOM.parent
    for path in (*sorted(ROOM.rglob("*")), *(package / name for name in BESIDE)):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
