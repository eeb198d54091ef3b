"""Requirements of the package, of the extras that are named, and of its measurements, one a line.

    python tools/requirements.py EXTRA...

The package itself is not among them.
"""

import sys
import tomllib
from pathlib import Path

for name in ("pyproject.toml", "benchmarks/pyproject.toml"):
    project = tomllib.loads(Path(name).read_text())["project"]
    extras = [project["optional-dependencies"].get(extra, []) for extra in sys.argv[1:]]
    for requirement in sum(extras, project["dependencies"]):
        if requirement != "outgrid":
            print(requirement)
