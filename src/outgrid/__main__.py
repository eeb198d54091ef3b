"""`python -m outgrid` is `outgrid`."""

import sys

from outgrid.cli import main

if __name__ == "__main__":
    sys.exit(main())
