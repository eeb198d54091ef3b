"""The tier `mmap`: fields in mapped files.

They are moved by copying, by the threads of the queue: a page that is not in memory is brought in
by the system when it is touched, and taken away when the system wants to.
"""

from pathlib import Path
from typing import Self

from outgrid.errors import StoreError
from outgrid.storage.base import Habits, NewField, Within
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers

__all__ = ["MappedStore", "create", "reopen"]


class MappedStore(DirectStore):
    """One field as a mapped .npy file, otherwise as `DirectStore` has it; made by `mapped`.

    A device that fails ends the process (SIGBUS) instead of a transfer.
    """

    def mapped(self, habits: Habits) -> Self:
        """This store, its file mapped. Raises StoreError where it cannot be."""
        try:
            self._file.map(habits.madvise, habits.msync)
        except OSError as error:
            self.close()
            raise StoreError(str(error.strerror), path=self.path, errno=error.errno) from error
        return self


def create(new: NewField, transfers: Transfers) -> MappedStore:
    """A new file of zeroes, mapped."""
    return MappedStore.create_as(new, transfers, direct=False).mapped(new.habits)


def reopen(
    path: Path, transfers: Transfers, habits: Habits, within: Within | None = None
) -> MappedStore:
    """The field in a file, mapped."""
    store = MappedStore.open(path, transfers, "rw", sums=True, direct=False, within=within)
    return store.mapped(habits)
