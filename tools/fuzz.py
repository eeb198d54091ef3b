"""Fuzz: the tests of files that lie (tests/property/test_hostile.py), for as long as wanted.

python tools/fuzz.py --minutes 30 --record benchmarks/records/fuzz.json

Every reader of the package gets random and randomly changed files: headers of fields, manifests,
records, locks and jobs. What is not read has to be refused with an error of the package.
"""

import argparse
import collections
import datetime
import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from hypothesis import settings
from origin import keep

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "property" / "test_hostile.py"
TURN = 200  # examples of a reader before the next one has its turn


class Folders:
    """Stands in for the fixture that makes folders: each is new, and goes with all of them."""

    def __init__(self, base: Path) -> None:
        self.base, self.numbers = base, itertools.count()

    def mktemp(self, name: str) -> Path:
        folder = self.base / f"{name}{next(self.numbers)}"
        folder.mkdir()
        return folder


def load_tests() -> Any:
    """The module of the tests, with a number of examples that suits turns."""
    os.environ["OUTGRID_FUZZ_EXAMPLES"] = str(TURN)
    settings.register_profile("fuzz", database=None, deadline=None, print_blob=True)
    settings.load_profile("fuzz")
    spec = importlib.util.spec_from_file_location("hostile", TESTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--record", type=Path, help="JSON file for the counts")
    given = parser.parse_args()
    started = datetime.datetime.now(datetime.UTC)
    begin = time.monotonic()
    module = load_tests()
    readers = [name for name in vars(module) if name.startswith("test_")]
    counts: collections.Counter[str] = collections.Counter()
    refused_or_read, current = module.refused_or_read, ""

    def counted(read: Any, *arguments: Any) -> None:
        counts[current] += 1
        refused_or_read(read, *arguments)

    module.refused_or_read = counted
    failures: list[str] = []
    for current in itertools.cycle(readers):
        if time.monotonic() - begin > 60 * given.minutes:
            break
        base = Path(tempfile.mkdtemp(prefix="outgrid-fuzz-", dir=os.environ.get("TMPDIR")))
        try:
            getattr(module, current)(tmp_path_factory=Folders(base))
        except Exception:
            failures.append(f"{current}: {traceback.format_exc()}")
            print(failures[-1], flush=True)
        finally:
            shutil.rmtree(base)
    seconds = round(time.monotonic() - begin, 1)
    print(f"{sum(counts.values())} files in {seconds} s, {len(failures)} failures")
    if given.record is not None:
        outcome = {"seconds": seconds, "files": dict(counts), "failures": failures}
        keep(given.record, started, outcome)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
