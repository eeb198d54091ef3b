"""What observers keep beside a run until its end, and the arrays that they leave then.

OUT/samples.npy.new         what receivers of a process, or of one of several ranks, have seen
OUT/totals.new              what it has found of the reductions
OUT/receivers.npy           the traces of a finished run
OUT/reductions.npy          its reductions
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.durable import partial_path, replace_file
from outgrid.errors import StoreError, file_errors
from outgrid.regular import own, read_own
from outgrid.runs.manifest import MANIFEST_NAME, Manifest
from outgrid.seal import Seal

TRACES_NAME = "receivers.npy"
REDUCTIONS_NAME = "reductions.npy"
SAMPLES_NAME = "samples.npy"
TOTALS_NAME = "totals"
DIGEST_BYTES = 8
CHUNK_BYTES = 16 << 20


def write_samples(out: Path, manifest: Manifest, samples: NDArray[np.float64]) -> Manifest:
    """Keep what was seen in each step so far, durably: an array as in a .npy file, its XXH3.

    Returns the manifest that stands on it, and is to be written next.
    """
    content, number = _npy_bytes(samples), manifest.samples + 1
    digest = xxhash.xxh3_64_intdigest(content) ^ _samples_seal(manifest, number).key
    _replace(samples_so_far(out), content + digest.to_bytes(DIGEST_BYTES, "big"))
    return msgspec.structs.replace(manifest, samples=number)


def read_samples(out: Path, manifest: Manifest) -> NDArray[np.float64] | None:
    """Traces of the receivers before the last commit; None for a run that has just begun.

    Raises StoreError for a file that is missing, damaged, or of another run or time than the
    manifest.
    """
    path = samples_so_far(out)
    try:
        text = read_own(path)
    except FileNotFoundError:
        if manifest.samples == 0:
            return None
        raise StoreError(
            "the stored values of receivers and reductions are missing", path=path
        ) from None
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot read", path=path, errno=error.errno) from error
    content, digest = text[:-DIGEST_BYTES], int.from_bytes(text[-DIGEST_BYTES:], "big")
    key, number = xxhash.xxh3_64_intdigest(content) ^ digest, manifest.samples
    # That of the next time is of a process which was cut off before its manifest was there.
    if key not in (
        _samples_seal(manifest, number).key,
        _samples_seal(manifest, number + 1).key,
    ):
        raise StoreError(
            "the values of receivers and reductions do not match their checksums: the file "
            f"is damaged, or of another run or time than {MANIFEST_NAME}",
            path=path,
        )
    return np.load(io.BytesIO(content))


def place_traces(out: Path, traces: NDArray[np.float64]) -> dict[str, str]:
    """Leave the traces of a finished run. Returns their checksum by the name of the file."""
    return _place(out, TRACES_NAME, traces)


def place_reductions(
    out: Path, names: Sequence[str], values: NDArray[np.float64]
) -> dict[str, str]:
    """The same of reductions: (steps, reductions), as named columns."""
    columns = np.zeros(len(values), [(name, np.float64) for name in names])
    for name, column in zip(names, values.T, strict=True):
        columns[name] = column
    return _place(out, REDUCTIONS_NAME, columns)


def check_placed(path: Path, digest: str) -> int:
    """The bytes of traces or reductions that were left. Raises StoreError for others."""
    found, nbytes = xxhash.xxh3_64(), 0
    with file_errors("cannot read", path), open(path, "rb", opener=own) as file:
        while content := file.read(CHUNK_BYTES):
            found.update(content)
            nbytes += len(content)
    if found.hexdigest() != digest:
        raise StoreError(
            f"the file is not the one that the run has left: its checksum is {found.hexdigest()}, "
            f"and the record has {digest}",
            path=path,
        )
    return nbytes


def totals_file(out: Path, manifest: Manifest) -> tuple[Path, str]:
    """The file of what one of several ranks has found of the reductions, and its run."""
    return totals_so_far(out), manifest.identity


def _place(out: Path, name: str, array: NDArray[Any]) -> dict[str, str]:
    content = _npy_bytes(array)
    _replace(out / name, content)
    return {name: xxhash.xxh3_64_hexdigest(content)}


def _replace(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise StoreError("cannot write", path=path, errno=error.errno) from error


def totals_so_far(out: Path) -> Path:
    return partial_path(out / TOTALS_NAME)


def samples_so_far(out: Path) -> Path:
    return partial_path(out / SAMPLES_NAME)


def _samples_seal(manifest: Manifest, number: int) -> Seal:
    return Seal(manifest.identity, SAMPLES_NAME, number)


def _npy_bytes(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()
