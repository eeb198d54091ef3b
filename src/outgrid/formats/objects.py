"""Files in object stores, such as s3://bucket/model.h5: copied in before use, out in the end."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outgrid.errors import Error, StoreError, UsageError
from outgrid.formats.registry import library

__all__ = ["check_free", "fetch", "is_url", "send"]

PIECE_BYTES = 8 << 20
LAST = ("zarr.json", ".zarray", ".zgroup")  # without which readers see nothing yet


def is_url(text: str) -> bool:
    """Whether a text names a place in an object store."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def fetch(url: str, folder: Path) -> Path:
    """Copy an object, or all that lies under its name, into a folder; where that is then.

    Raises UsageError where obstore is not there, StoreError where nothing is, or it ends early.
    """
    obstore, store, name = _opened(url)
    with _telling(url):
        objects = _there(obstore, store, name)
        if not objects:
            raise StoreError(f"{url} does not exist")
        for entry in objects:
            path = folder / entry["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for piece in obstore.get(store, entry["path"]).stream(min_chunk_size=PIECE_BYTES):
                    file.write(piece)
                if file.tell() != entry["size"]:
                    raise StoreError(
                        f"{entry['path']} of {url} ended after {file.tell()} of "
                        f"{entry['size']} bytes"
                    )
    return folder / name


def check_free(url: str) -> None:
    """Raise UsageError where something is there already."""
    obstore, store, name = _opened(url)
    with _telling(url):
        if _there(obstore, store, name):
            raise UsageError(f"{url} exists and is not overwritten; remove it, or give --overwrite")


def send(path: Path, url: str) -> None:
    """Copy a file, or all files of a folder, to where a URL says. Metadata of Zarr come last.

    Objects of that name are replaced, and others that lie under it are deleted: before the copy,
    and metadata first, so that no reader sees an old array with new values. Raises UsageError where
    obstore is not there, StoreError.
    """
    obstore, store, name = _opened(url)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    files.sort(key=lambda file: (file.name in LAST, -len(file.parts) if file.name in LAST else 0))
    places = {
        f"{name}/{file.relative_to(path).as_posix()}" if path.is_dir() else name: file
        for file in files
    }
    with _telling(url):
        there = [str(entry["path"]) for entry in _there(obstore, store, name)]
        metadata = [place for place in there if place.rpartition("/")[2] in LAST]
        others = [place for place in there if place not in {*metadata, *places}]
        for old in (sorted(metadata, key=len), others):
            if old:
                obstore.delete(store, old)
        for place, file in places.items():
            obstore.put(store, place, file)


def _there(obstore: Any, store: Any, name: str) -> list[Any]:
    """The object of that name, or all whose names go on with a slash."""
    try:
        return [obstore.head(store, name)]
    except FileNotFoundError:
        return [entry for some in obstore.list(store, prefix=name) for entry in some]


def _opened(url: str) -> tuple[Any, Any, str]:
    """The library, the store that a URL is in, and the name there."""
    obstore: Any = library("obstore", url, "cloud")
    stores: Any = library("obstore.store", url, "cloud")
    place, _, name = url.rstrip("/").rpartition("/")
    if not name or place.endswith(":/"):
        raise UsageError(f"{url} must name an object, such as s3://bucket/model.h5")
    with _telling(url):
        return obstore, stores.from_url(place), name


@contextmanager
def _telling(url: str) -> Generator[None]:
    """Turn what the library says into StoreError."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # of stores, networks and clouds, of any kind
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StoreError(f"{url} cannot be reached: {said}") from error
