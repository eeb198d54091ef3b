"""From C++ source to a loaded kernel, through a cache on disk.

An entry is named by a digest of everything that decides its bytes: source, compiler, its version,
flags and processor. It lands by an atomic rename, so several processes may build at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from outgrid.errors import BuildError

OPTIMISATION = "-O3"
FLAGS = (
    "-std=c++20",
    OPTIMISATION,
    "-march=native",
    "-ffp-contract=off",  # the generator writes every fused multiply-add itself
    "-fno-math-errno",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-Wno-psabi",
)
SPIN_COUNT = "10000"
GCC_FLAGS = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: the command and what it says of itself."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for kernels. A level of optimisation that the command names itself stands."""
        named = any(word.startswith("-O") for word in self.command)
        return tuple(flag for flag in FLAGS + GCC_FLAGS if flag != OPTIMISATION or not named)


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded kernel and the file it came from."""

    path: Path
    source_path: Path
    handle: ctypes.CDLL
    cached: bool


def find_compiler() -> Compiler:
    """``$CXX``, else g++, else clang++. Raises BuildError that says what to install."""
    wanted = os.environ.get("CXX")
    candidates = [shlex.split(wanted)] if wanted else [["g++"], ["clang++"]]
    for command in candidates:
        path = shutil.which(command[0]) if command else None
        if path is not None and (version := _version(tuple(command), path)) is not None:
            return Compiler(tuple(command), version)
    looked = " or ".join(shlex.join(command) for command in candidates)
    raise BuildError(
        f"no C++ compiler: looked for {looked}. Install one (Debian, Ubuntu: apt-get install g++) "
        "or name it in $CXX"
    )


@cache
def _version(command: tuple[str, ...], path: str) -> str | None:
    """What the compiler at ``path`` says of itself, None where it fails."""
    found = subprocess.run([path, *command[1:], "--version"], capture_output=True, text=True)
    return found.stdout.splitlines()[0] if found.returncode == 0 else None


def cache_folder() -> Path:
    """``$OUTGRID_CACHE``, else ``$XDG_CACHE_HOME/outgrid``, else ``~/.cache/outgrid``."""
    if named := os.environ.get("OUTGRID_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outgrid"


def build(source: str, compiler: Compiler, folder: Path | None = None) -> Library:
    """Compile ``source``, or find it compiled, and load it.

    Raises BuildError with the compiler's words, the command and the path of the source.
    """
    # Threads that wait should soon sleep: where another process has a core, spinning starves the
    # thread that is waited for. Read by the OpenMP library when the first kernel loads it.
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    folder = (folder or cache_folder()) / "kernels"
    digest = _digest(source, compiler)
    library, kept = folder / f"{digest}.so", folder / f"{digest}.cpp"
    if library.exists():
        with suppress(OSError):  # what a crash left of a library is compiled anew
            return Library(library, kept, ctypes.CDLL(str(library)), cached=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(kept, source)
        _compile(kept, library, compiler)
        return Library(library, kept, ctypes.CDLL(str(library)), cached=False)
    except OSError as error:
        raise BuildError(
            f"cannot keep or load a kernel in {folder}: {error}; $OUTGRID_CACHE names another place"
        ) from error


def _digest(source: str, compiler: Compiler) -> str:
    parts = (source, *compiler.command, compiler.version, *compiler.flags, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """What ``-march=native`` stands for here: the processor's flags."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _write_atomically(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


def _compile(source: Path, library: Path, compiler: Compiler) -> None:
    partial = library.with_suffix(f".{os.getpid()}.partial")
    command = [*compiler.command, *compiler.flags, str(source), "-o", str(partial)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        how = (
            f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        )
        raise BuildError(
            f"the kernel did not compile ({how}).\n  source: {source}\n"
            f"  command: {shlex.join(command)}\n{done.stderr.strip()}",
            source_path=source,
            command=tuple(command),
        )
    os.replace(partial, library)
