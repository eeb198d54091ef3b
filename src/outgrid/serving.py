"""Files of a folder by HTTP, for viewers in a browser of this machine: loopback, ranges, CORS."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from outgrid.errors import UsageError
from outgrid.formats.source import decoding
from outgrid.regular import given, resolved

__all__ = ["HOST", "Served", "link"]

HOST = "127.0.0.1"
MOST_PORT = 65535
VIEWER = "https://neuroglancer-demo.appspot.com/#!"
METADATA = "zarr.json"
PIECE_BYTES = 1 << 20
SHOWN = 0.1, 0.3, 0.5, 0.7, 0.9  # parts of the way along each axis, of whose chunks the range is
MOST_SHOWN_BYTES = 64 << 20  # of a chunk
HEADERS = (
    ("Accept-Ranges", "bytes"),
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Headers", "*"),
    ("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS"),
    ("Access-Control-Allow-Private-Network", "true"),
    ("Access-Control-Expose-Headers", "Content-Range, Content-Length, Accept-Ranges"),
    ("Cache-Control", "no-cache"),
)


class Served(ThreadingHTTPServer):
    """The files of a Zarr group in `folder`, at `port` of this machine, or at any that is free.

    `arrays` are the paths of the arrays in it, a pyramid as a whole. Raises UsageError for a folder
    that is none, and for a port that is not free.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = resolved(folder)
        if not (folder / METADATA).is_file():
            there = f"has no {METADATA}" if folder.is_dir() else "is not a folder"
            raise UsageError(
                f"{folder} {there}, as a Zarr group must; write one with outgrid export "
                f"{folder} --to FILE.zarr --levels, and serve that"
            )
        self.arrays = tuple(_arrays(folder))
        if not 0 <= port <= MOST_PORT:
            raise UsageError(
                f"port must be within 0 to {MOST_PORT}, not {port}; 0 chooses a free one"
            )
        try:
            super().__init__((HOST, port), _Request)
        except OSError as error:
            raise UsageError(
                f"port {port} of {HOST} is not available: {error.strerror}; leave --port out to "
                "use a free port"
            ) from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that has gone, as a browser does that needs no more."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.server_address[1]}"

    def source(self, array: str) -> str:
        """An array as viewers name it."""
        return f"zarr://{self.address}/{array}/" if array else f"zarr://{self.address}/"

    def open(self, path: str) -> BinaryIO | None:
        """A file of the folder; None where there is none, and for what lies outside."""
        parts = urllib.parse.unquote(path.partition("?")[0].partition("#")[0]).split("/")[1:]
        if not all(parts) or any(part in (".", "..") or "\0" in part for part in parts):
            return None
        file = self.folder.joinpath(*parts)
        try:
            if not resolved(file).is_relative_to(self.folder) or not file.is_file():
                return None
            return open(file, "rb", opener=given)
        except OSError:
            return None


class _Request(BaseHTTPRequestHandler):
    """One connection."""

    server: Served  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 60
    # Else what follows the head of an answer waits for a word of the reader, 40 ms for each chunk.
    disable_nagle_algorithm = True

    def do_OPTIONS(self) -> None:
        """What a browser asks before it reads from another place than the page's."""
        self._head(HTTPStatus.NO_CONTENT, 0)

    def do_HEAD(self) -> None:
        """A file without its bytes."""
        self._answer(whole=False)

    def do_GET(self) -> None:
        """A file, or a range of it."""
        self._answer(whole=True)

    def _answer(self, *, whole: bool) -> None:
        file = self.server.open(self.path)
        if file is None:
            said = b"there is no such file\n"
            self._head(HTTPStatus.NOT_FOUND, len(said))
            if whole:
                self.wfile.write(said)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            asked = _asked(self.headers.get("Range", ""), size)
            if asked is None:
                self._head(HTTPStatus.OK, size)
                asked = range(size)
            elif not asked:
                said = ("Content-Range", f"bytes */{size}")
                self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, said)
            else:
                said = ("Content-Range", f"bytes {asked.start}-{asked.stop - 1}/{size}")
                self._head(HTTPStatus.PARTIAL_CONTENT, len(asked), said)
            if whole:
                self._send(file, asked)

    def _send(self, file: BinaryIO, cells: range) -> None:
        file.seek(cells.start)
        left = len(cells)
        while left:
            piece = file.read(min(left, PIECE_BYTES))
            if not piece:  # it was cut while it is read
                self.close_connection = True
                return
            self.wfile.write(piece)
            left -= len(piece)

    def _head(self, status: HTTPStatus, nbytes: int, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for key, value in (*HEADERS, *more, ("Content-Length", str(nbytes))):
            self.send_header(key, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing of each request."""


def link(served: Served, array: str) -> str:
    """A page that shows an array of a folder that is served, by neuroglancer.

    It shows real numbers from 0 to 1 as black to white unless it is told which ones there are.
    """
    layer: dict[str, Any] = {
        "type": "image",
        "name": array or "all",
        "source": served.source(array),
    }
    shown = _range(served.folder, array)
    if shown is not None:
        layer["shaderControls"] = {"normalized": {"range": shown}}
    state = json.dumps({"layers": [layer]}, separators=(",", ":"))
    return VIEWER + urllib.parse.quote(state)


def _range(folder: Path, array: str) -> list[float] | None:
    """The least and the largest of some values of an array, of the coarsest level of a pyramid.

    None where zarr-python is not there, or no values differ, or too much had to be read.
    """
    if importlib.util.find_spec("zarr") is None:
        return None
    levels = _levels(_said(folder / array / METADATA))
    level = levels[0]["datasets"][-1]["path"] if levels else ""
    path = "/".join(part for part in (array, level) if part)
    with decoding(folder / path):
        zarr: Any = importlib.import_module("zarr")
        opened = zarr.open(folder / path, mode="r")
        if prod(opened.chunks) * opened.dtype.itemsize > MOST_SHOWN_BYTES:
            return None
        values = np.array([], np.float64)
        for part in SHOWN:
            first = [int(extent * part) // n * n for extent, n in _axes(opened)]
            box = tuple(slice(at, at + n) for at, n in zip(first, opened.chunks, strict=True))
            values = np.concatenate((values, np.asarray(opened[box], np.float64).ravel()))
    values = values[np.isfinite(values)]
    ends = [float(values.min()), float(values.max())] if values.size else [0.0, 0.0]
    return ends if ends[0] < ends[1] else None


def _axes(opened: Any) -> Iterator[tuple[int, int]]:
    return zip(opened.shape, opened.chunks, strict=True)


def _asked(text: str, size: int) -> range | None:
    """The bytes that a request wants; None for all, an empty range for what is not there."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", text.strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    stop = min(size, int(last) + 1) if last else size
    return range(int(first), stop)


def _arrays(folder: Path, name: str = "") -> Iterator[str]:
    """Paths of the arrays, and of groups that are the pyramid of one."""
    said = _said(folder / METADATA)
    if _levels(said) or (said.get("node_type") == "array" and len(said.get("shape", ())) > 1):
        yield name
    elif said.get("node_type") == "group":
        for path in sorted(folder.glob(f"*/{METADATA}")):
            within = path.parent.name
            yield from _arrays(path.parent, f"{name}/{within}" if name else within)


def _levels(said: Mapping[str, Any]) -> list[Any]:
    """The pyramids that a group is, after OME-Zarr. Groups of images, such as plates, are none."""
    levels: list[Any] = said.get("attributes", {}).get("ome", {}).get("multiscales", [])
    return levels


def _said(path: Path) -> dict[str, Any]:
    try:
        metadata: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not Zarr metadata: {error}") from error
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
