"""Wheels for old systems, checked: `make wheel`.

For each processor a wheel of the stable ABI of Python 3.12 and one for Python 3.11 are compiled
against glibc 2.28, with liburing and xxHash linked in. The compiler is that of the package ziglang,
which compiles for other processors as well. The wheels are audited by auditwheel and abi3audit.
Those for this processor are installed in fresh environments, where the tests of
`tests/integration/test_smoke.py` run. The source archive lies beside them.

With `--emulated FOLDER` and qemu-aarch64-static, the wheel for aarch64 that suits the Python in a
folder is imported and streams a small problem, with the reference executor, since there is no
compiler. The folder holds Debian for arm64: bookworm has Python 3.11, trixie 3.13 (debootstrap as
root):

    debootstrap --foreign --arch=arm64 --variant=minbase --include=python3 trixie FOLDER
    for package in FOLDER/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" FOLDER; done

Kernels, io_uring and kernel AIO are not tested: the emulator does not have these system calls.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
GLIBC = "2.28"
PYTHONS = ("3.12", "3.11")
PROCESSORS = ("x86_64", "aarch64")
BUILDERS = ("scikit-build-core>=0.10", "nanobind>=2.4", "cmake", "ninja", "build", "ziglang>=0.14")
AUDITORS = ("auditwheel>=6", "abi3audit", "wheel")
EMULATED_TAGS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
TESTERS = ("pytest>=8", "hypothesis>=6.100")


def run(*command: str | Path, **settings: str) -> str:
    """Run a command and return what it printed; end with its words where it fails."""
    words = [str(word) for word in command]
    print(f"+ {shlex.join(words)}", flush=True)
    done = subprocess.run(
        words,
        env=os.environ | settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed with exit code {done.returncode}: {shlex.join(words)}")
    return done.stdout


def interpreter(version: str) -> Path:
    """The Python of a version: on the path, of uv, or of pyenv."""
    ways = [[f"python{version}"], ["uv", "python", "find", version]]
    if shutil.which("pyenv"):
        known = subprocess.run(["pyenv", "latest", version], capture_output=True, text=True)
        if known.returncode == 0:
            root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
            ways.append([f"{root}/versions/{known.stdout.strip()}/bin/python"])
    for way in ways:
        if shutil.which(way[0]) is None:
            continue
        path = way[0]
        if way[0] == "uv":
            path = subprocess.run(way, capture_output=True, text=True).stdout.strip() or "false"
        asked = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return Path(shutil.which(path) or path)
    sys.exit(
        f"no Python {version}: not on the path, nor with uv or pyenv; uv python install {version}"
    )


def environment(folder: Path, python: Path, packages: Sequence[str]) -> Path:
    """A virtual environment with packages; its interpreter."""
    made = folder / "bin" / "python"
    if not made.exists():
        run(python, "-m", "venv", folder)
    run(made, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    return made


@dataclass(frozen=True)
class Target:
    """A processor, and the commands that compile for it."""

    processor: str
    commands: Path
    libraries: Path

    @property
    def native(self) -> bool:
        return self.processor == platform.machine()

    def settings(self, version: str) -> dict[str, str]:
        """The environment of a build for it."""
        defines = {
            "CMAKE_CXX_COMPILER": self.commands / "c++",
            "CMAKE_AR": self.commands / "ar",
            "CMAKE_RANLIB": self.commands / "ranlib",
            "CMAKE_CXX_COMPILER_AR": self.commands / "ar",
            "CMAKE_CXX_COMPILER_RANLIB": self.commands / "ranlib",
            "OUTGRID_NEEDS_URING": "ON",
            # Headers of this system are of another glibc.
            "CMAKE_FIND_ROOT_PATH": self.libraries,
            "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
        }
        settings: dict[str, str] = {}
        if not self.native:
            suffix = f".cpython-{version.replace('.', '')}-{self.processor}-linux-gnu.so"
            defines |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": self.processor}
            settings |= {
                "_PYTHON_HOST_PLATFORM": f"linux-{self.processor}",
                "SETUPTOOLS_EXT_SUFFIX": suffix,
            }
            if version == "3.11":
                defines["NB_SUFFIX"] = suffix
        words = " ".join(f"-D{name}={value}" for name, value in defines.items())
        return settings | {"CMAKE_ARGS": words, "CMAKE_GENERATOR": "Ninja"}


def target(work: Path, processor: str, builder: Path) -> Target:
    """What compiles for a processor: zig's commands, and liburing compiled by them."""
    commands = work / processor / "bin"
    commands.mkdir(parents=True, exist_ok=True)
    triple = f"{processor}-linux-gnu.{GLIBC}"
    for name, words in {
        "cc": f"cc -target {triple}",
        "c++": f"c++ -target {triple}",
        "ar": "ar",
        "ranlib": "ranlib",
    }.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(builder))} -m ziglang {words} "$@"\n')
        command.chmod(0o755)
    libraries = work / processor / "libraries"
    settings = {name: str(commands / name.lower()) for name in ("CC", "AR", "RANLIB")}
    run(HERE / "liburing.sh", libraries, **settings)
    return Target(processor, commands, libraries)


def compiled(source: Path, target: Target, version: str, builder: Path, out: Path) -> Path:
    """The wheel of a version of Python for a target."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check")
        config = f"build-dir={folder}/build"
        run(
            *(builder, "-m", "pip", "wheel", "-q", *words, "-C", config, "-w", folder, source),
            **target.settings(version),
            PATH=f"{builder.parent}:{os.environ['PATH']}",
        )
        wheel = next(Path(folder).glob("*.whl"))
        return Path(shutil.copy(wheel, out))


def audited(wheel: Path, target: Target, auditor: Path, out: Path) -> Path:
    """The wheel as one of manylinux, once it is certain that it is."""
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{target.processor}"
    said = run(auditor, "-m", "auditwheel", "show", wheel)
    if tag not in said:
        sys.exit(f"{wheel.name} needs more than {tag}:\n{said}")
    if "-abi3-" in wheel.name:
        print(run(auditor, "-m", "abi3audit", "--strict", "--verbose", wheel))
    named = run(auditor, "-m", "wheel", "tags", "--platform-tag", tag, wheel).split()[-1]
    return Path(shutil.move(wheel.parent / named, out / named))


def tested(wheel: Path, python: Path, work: Path) -> None:
    """Install a wheel where nothing else is, and run the smoke tests with it."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        fresh = environment(Path(folder) / "venv", python, [str(wheel), *TESTERS])
        print(run(fresh.parent / "outgrid", "--version"))
        # From a folder without the source, so that it is the wheel that is tested.
        tests = (SOURCE / "tests/integration/test_smoke.py", "-o", f"cache_dir={folder}/cache")
        print(run(fresh, "-m", "pytest", "-q", *tests, OUTGRID_WHEEL=str(wheel)))


def python_in(root: Path) -> str:
    """The version of the Python of a system in a folder."""
    found = sorted(root.glob("usr/bin/python3.*[0-9]"))
    if not found:
        sys.exit(f"no usr/bin/python3.* in {root}: --emulated needs Debian for arm64 with Python 3")
    return found[0].name.removeprefix("python")


def suits(version: str, python: str) -> bool:
    """Whether the wheel that a version builds is the one for a Python."""
    return version == python if python == "3.11" else version == "3.12"


def emulated(wheel: Path, root: Path, work: Path) -> None:
    """Import a wheel for aarch64 in an emulator, and make a streamed run with it."""
    version = python_in(root)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        packages = f"{folder}/site-packages"
        wanted = [word for tag in EMULATED_TAGS for word in ("--platform", tag)]
        wanted += ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
        asked = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        run(*asked, "--target", packages, *wanted, wheel, *TESTERS)
        emulator = shutil.which("qemu-aarch64-static")
        if emulator is None:
            sys.exit("--emulated needs qemu-aarch64-static; apt-get install qemu-user-static")
        python = emulator, "-L", root, root / f"usr/bin/python{version}"
        tests = "-o", f"cache_dir={folder}/cache", "-k", "streamed_run or all_engines"
        print(
            run(
                *(*python, "-m", "pytest", "-q", *tests),
                SOURCE / "tests/integration/test_smoke.py",
                PYTHONPATH=packages,
                OUTGRID_WHEEL=str(wheel),
                CXX="",
                PATH=f"{folder}/nothing",
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=SOURCE / "dist")
    parser.add_argument("--work", type=Path, default=SOURCE / "build" / "wheel")
    parser.add_argument("--python", action="append", choices=PYTHONS)
    parser.add_argument("--processor", action="append", choices=PROCESSORS)
    parser.add_argument(
        "--emulated", type=Path, metavar="FOLDER", help="Debian for arm64 that tests wheels"
    )
    arguments = parser.parse_args()
    out, work = arguments.out.absolute(), arguments.work.absolute()
    root = None if arguments.emulated is None else arguments.emulated.absolute()
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    pythons = {version: interpreter(version) for version in arguments.python or PYTHONS}
    builders = {
        version: environment(work / version, python, (*BUILDERS, *AUDITORS))
        for version, python in pythons.items()
    }
    first = next(iter(builders.values()))
    run(first, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, SOURCE)
    source = max(out.glob("outgrid-*.tar.gz"), key=os.path.getmtime)
    for processor in arguments.processor or PROCESSORS:
        wanted = target(work, processor, first)
        for version, builder in builders.items():
            with tempfile.TemporaryDirectory(dir=work) as folder:
                raw = compiled(source, wanted, version, builder, Path(folder))
                wheel = audited(raw, wanted, first, out)
            if wanted.native:
                tested(wheel, pythons[version], work)
            elif root is not None and suits(version, python_in(root)):
                emulated(wheel, root, work)
            print(f"{wheel.name}: {wheel.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
