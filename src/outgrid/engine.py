"""The engine by which xarray opens a run: `xr.open_dataset("heat.run", engine="outgrid")`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from xarray.backends import BackendEntrypoint

from outgrid.api import open_run
from outgrid.record import RECORD_NAME

__all__ = ["RunEntrypoint"]


class RunEntrypoint(BackendEntrypoint):
    """Opens the folder of a finished run."""

    description = "Open the fields and snapshots of a run of outgrid"
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None
    ) -> Any:
        """The fields and snapshots of a run, read when they are used."""
        dataset = open_run(Path(os.fspath(cast("str", filename_or_obj)))).to_xarray()
        return dataset if drop_variables is None else dataset.drop_vars(drop_variables)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a folder with a record."""
        try:
            return (Path(os.fspath(cast("str", filename_or_obj))) / RECORD_NAME).is_file()
        except TypeError:  # an open file, or a store
            return False
