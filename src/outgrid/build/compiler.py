"""From C++ source to a loaded kernel, through a cache on disk.

An entry is named by digests of all that decides its bytes: source, processor, and compiler with its
version and flags. It lands whole and durable, so several processes may build at once, and ends with
a digest of itself, which is compared before it is loaded. Where there is no compiler, what another
one has made of the source for this processor serves as well: results have the same bytes.
"""

from __future__ import annotations

import msgspec
import ctypes
import hashlib
import importlib.util
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from outgrid.build.arithmetic import check_arithmetic, defined
from outgrid.build.kept import cache_folder, check_writable, elsewhere, keep, label_of, labelled, read_trusted
from outgrid.errors import BuildError, NoCompiler
from outgrid.machine import wanted_compiler

OPTIMISATION = "-O3"
PROCESSOR = "-march=native"
FLAGS = (
    "-std=c++20",
    OPTIMISATION,
    PROCESSOR,
    "-ffp-contract=off",  # the generator writes every fused multiply-add itself
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-Wno-psabi",
)
EMPTY = '#include <new>\nextern "C" int* outgrid_nothing() { return new int; }\n'
GCC_FLAGS = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()
# How the line of /proc/cpuinfo begins that says what a processor can do: x86, Arm, RISC-V, POWER.
ABILITIES = ("flags", "Features", "isa", "cpu\t")
# Likewise of those that say which one it is: x86, Arm, RISC-V.
MODEL = ("cpu family", "model\t", "stepping", "CPU part", "CPU variant", "CPU revision", "uarch")
NAME_DIGITS = 24
VECTORS = {"avx512f": 64, "avx2": 32}  # bytes of those that a processor has, by its abilities


class Compiler(msgspec.Struct, frozen=True):
    """A C++ compiler: the command and what it says of itself."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for kernels.

        What the command names itself, a level of optimisation or a processor, stands. None asks for
        OpenMP: kernels run on the threads of the core.
        """
        own = {
            OPTIMISATION: ("-O",),
            PROCESSOR: ("-march=", "-mcpu="),
        }
        return tuple(
            flag
            for flag in FLAGS + GCC_FLAGS
            if not any(word.startswith(own.get(flag, ())) for word in self.command)
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """All that decides what it makes of a source on a processor."""
        return (*self.command, self.version, *self.flags)

    @property
    def builds_library(self) -> bool:
        """Whether it compiles the C++ library itself, once, which takes minutes."""
        return "ziglang" in self.command or Path(self.command[0]).name == "zig"

    def __str__(self) -> str:
        return f"{self.version}, {shlex.join((*self.command, *self.flags))}"


class Library(msgspec.Struct, frozen=True):
    """A loaded kernel and the file it came from.

    ``compiler`` names the compiler that made it, with its flags; ``note`` says, where the kernel was
    not come by in the usual way, how it was.
    """

    path: Path
    handle: ctypes.CDLL
    cached: bool
    compiler: str
    note: str = ""

    @property
    def source_path(self) -> Path:
        """The source, kept to be looked at."""
        return self.path.with_suffix(".cpp")


def find_compiler() -> Compiler:
    """``$CXX``, else g++, clang++, or the one of the package ziglang.

    Raises NoCompiler, which says how to get one; BuildError where the one in ``$CXX`` is missing.
    """
    wanted = wanted_compiler()
    candidates = [wanted] if wanted else [["g++"], ["clang++"], *_by_pip()]
    for command in candidates:
        path = shutil.which(command[0]) if command else None
        if path is not None and (version := _version(tuple(command), path)) is not None:
            return Compiler(tuple(command), version)
    looked = ", ".join(shlex.join(command) for command in candidates)
    raise (BuildError if wanted else NoCompiler)(
        f"no C++ compiler: looked for {looked}. Three ways to get one: install it (Debian, Ubuntu: "
        "apt-get install g++; conda: conda install cxx-compiler); pip install 'outgrid[compiler]'; "
        "or name one in $CXX"
    )


def _by_pip() -> list[list[str]]:
    """The compiler that comes as a package of Python, where it is installed."""
    if importlib.util.find_spec("ziglang") is None:
        return []
    return [[sys.executable, "-m", "ziglang", "c++"]]


@cache
def _version(command: tuple[str, ...], path: str) -> str | None:
    """What the compiler at ``path`` says of itself, None where it fails."""
    answer = subprocess.run([path, *command[1:], "--version"], capture_output=True, text=True)
    return answer.stdout.splitlines()[0] if answer.returncode == 0 else None


def warm_up(compiler: Compiler) -> None:
    """Let a compiler make what it keeps for all kernels. Raises BuildError."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "nothing.so"
        library.with_suffix(".cpp").write_text(EMPTY)
        _compiled(library, compiler)


def load(source: str, folder: Path | None = None) -> Library:
    """The library of ``source`` by the compiler at hand; without one, what another has left.

    Raises BuildError where there is neither, else what ``build`` raises.
    """
    try:
        compiler = find_compiler()
    except BuildError as missing:
        with _kept_in(folder) as place:
            path, words = _by_another(source, place, missing)
            note = f"no C++ compiler was found: the kernel is the one in {path}, by {words}"
            return Library(path, ctypes.CDLL(str(path)), True, words, note)
    return build(source, compiler, folder)


def check_loadable(source: str, folder: Path | None = None) -> None:
    """Raise what ``load`` would, as far as can be told without compiling or loading anything."""
    try:
        compiler = find_compiler()
    except BuildError as missing:
        with _kept_in(folder) as place:
            _by_another(source, place, missing)
        return
    with _kept_in(folder) as place:
        if _words_of(_path(source, compiler, place)) is None:
            check_arithmetic(compiler.command, compiler.flags)
            check_writable(place)


def build(source: str, compiler: Compiler, folder: Path | None = None) -> Library:
    """Compile ``source``, or find it compiled, and load it.

    Raises BuildError with the compiler's words, the command and the path of the source, or where
    what the compiler makes would change results; UsageError where others may write to the cache.
    """
    with _kept_in(folder) as place:
        path, note = _path(source, compiler, place), ""
        words = _words_of(path)
        if words is not None:
            with suppress(OSError):  # what needs another library that is gone is compiled anew
                return Library(path, ctypes.CDLL(str(path)), True, words)
        elif path.exists():
            note = f"{path} was damaged, and the kernel was compiled again"
        keep(path.with_suffix(".cpp"), source.encode())
        keep(path, labelled(_compiled(path, compiler), str(compiler)))
        return Library(path, ctypes.CDLL(str(path)), False, str(compiler), note)


@contextmanager
def _kept_in(folder: Path | None) -> Generator[Path]:
    """The folder of kernels in a cache."""
    place = (folder or cache_folder()) / "kernels"
    try:
        yield place
    except OSError as error:
        raise BuildError(
            f"cannot keep or load a kernel in {place}: {error}; {elsewhere()}"
        ) from error


def _words_of(path: Path) -> str | None:
    """The compiler of a library that is kept and whole; else None."""
    whole = read_trusted(path)
    return None if whole is None else label_of(whole)


def _by_another(source: str, place: Path, missing: BuildError) -> tuple[Path, str]:
    """The last library of ``source`` that was made for this processor, and its compiler."""
    for path in _last_first(place.glob(f"{_name(source, _processor())}-*.so")):
        if (words := _words_of(path)) is not None:
            return path, words
    others = any(place.glob(f"{_name(source)}-*.so"))
    what = "only for other processors, or damaged" if others else "not at all"
    raise type(missing)(f"{missing}. In {place} the kernel is kept {what}") from missing


def _last_first(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.lstat().st_mtime_ns, reverse=True)


def _path(source: str, compiler: Compiler, place: Path) -> Path:
    by = "\0".join(compiler.identity)
    return place / f"{_name(source, _processor(), by)}.so"


def _name(*parts: str) -> str:
    """A digest of each."""
    return "-".join(hashlib.sha256(part.encode()).hexdigest()[:NAME_DIGITS] for part in parts)


def processor() -> tuple[str, ...]:
    """What the processor can do, and which one it is: two that can do the same differ in speed."""
    told = _told_of_processor()
    return _processor(), *(line for line in told if line.startswith(MODEL))


def vector_bytes() -> int:
    """Bytes of the vectors that kernels compute with: 64 or 32, or 0 where they are shorter.

    Or where the compiler does not say: what is wrong with it is told when it compiles.
    """
    names = {f"__{able.upper()}__": able for able in VECTORS}
    abilities: Collection[str] = ()
    try:
        compiler = find_compiler()
    except BuildError:  # what another one has left may be here
        abilities = _processor().split()
    else:
        with suppress(BuildError):
            found = defined(compiler.command, compiler.flags, names)
            abilities = [names[macro] for macro in found]
    return next((nbytes for able, nbytes in VECTORS.items() if able in abilities), 0)


def _processor() -> str:
    """What ``-march=native`` stands for here: what the processor can do."""
    told = _told_of_processor()
    abilities = next((line for line in told if line.startswith(ABILITIES)), platform.processor())
    return f"{platform.machine()} {abilities}"


def _told_of_processor() -> list[str]:
    """Lines about the first processor."""
    try:
        return Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except FileNotFoundError:
        return []


def _compiled(library: Path, compiler: Compiler) -> bytes:
    """What the compiler makes of the source that lies beside ``library``."""
    source = library.with_suffix(".cpp")
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        command = [*compiler.command, *compiler.flags, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            how = (
                f"exit code {done.returncode}"
                if done.returncode > 0
                else f"signal {-done.returncode}"
            )
            raise BuildError(
                f"the kernel did not compile ({how}).\n  source: {source}\n"
                f"  command: {shlex.join(command)}\n{done.stderr.strip()}",
                source_path=source,
                command=tuple(command),
            )
        check_arithmetic(compiler.command, compiler.flags)
        return made.read_bytes()
