"""What every format of files must do, as tests for pytest, of formats here and in other packages.

    class TestMine(FormatSuite):
        file = "u.mine"

The format has to be known by then: by an entry point of the group `outgrid.formats`.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from outgrid.api import plan, resume, run
from outgrid.errors import Error, Stopped, StoreError
from outgrid.formats import Box, Format, InputFile, boxes, open_file
from outgrid.formats.arrays import ArraySource
from outgrid.formats.axis import Axis
from outgrid.formats.registry import format_of
from outgrid.formats.sink import Array, Filing, Sink, copy
from outgrid.formats.source import slices
from outgrid.stencil.problem import Problem

__all__ = ["FormatSuite"]

LEAST_MEMORY_BYTES = 1 << 20


class FormatSuite:
    """The tests of a format that is read and written.

    `file` is the name of a file, whose suffix says the format; `shapes` and `dtypes` are those
    that it stores, with `dims` for the names of their axes. One that is only read overrides
    `write`.
    """

    file: ClassVar[str]
    shapes: ClassVar[tuple[tuple[int, ...], ...]] = ((5, 7, 9), (16, 40, 64))
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "int16")
    dims: ClassVar[tuple[str, ...]] = ("z", "y", "x")

    @property
    def format(self) -> Format:
        """What is tested."""
        return format_of(self.file)

    def values(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """Values of which no two neighbours are alike."""
        return np.random.default_rng(7).integers(-999, 999, shape).astype(dtype)

    def array(self, values: NDArray[Any]) -> Array:
        """How the values are stored."""
        axes = tuple(map(Axis, self.dims))
        return Array("u", values.shape, values.dtype, axes, memory_bytes=LEAST_MEMORY_BYTES)

    def input(self, path: Path, values: NDArray[Any]) -> InputFile:
        """The file of these values, as it is given for initial values."""
        bare: dict[str, Any] = (
            {"shape": values.shape, "dtype": values.dtype.str} if self.format.bare else {}
        )
        return InputFile(str(path), **bare)

    def write(self, path: Path, values: NDArray[Any]) -> None:
        """Write a file of the format."""
        output = self.format.create_output(path)
        with closing(output):
            sink = output.array(self.array(values))
            for box in _whole_boxes(sink, values.shape, 400):
                sink.write(box, values[slices(box)])
            output.commit()

    def spoil(self, path: Path) -> None:
        """Take away a part of what holds the values: the end of a file, or a file of a folder."""
        if path.is_dir():
            inside = [file for file in path.rglob("*") if file.is_file()]
            max(inside, key=lambda file: file.stat().st_size).unlink()
        else:
            os.truncate(path, path.stat().st_size * 2 // 3)

    # What is written is read.

    def test_what_was_written_is_read_in_any_box(self, tmp_path: Path) -> None:
        """Values, extents and type are those that were written; boxes may be any."""
        chosen = random.Random(3)
        for number, (shape, dtype) in enumerate(self._kinds()):
            values, path = self.values(shape, dtype), tmp_path / f"{number}.{self.file}"
            self.write(path, values)
            with closing(open_file(self.input(path, values))) as source:
                assert source.shape == shape
                assert source.dtype.newbyteorder("=") == values.dtype
                assert len(source.chunk) == len(shape)
                assert source.decoded_bytes >= 0
                assert source.at_once >= 1
                assert len(source.dims) in (0, len(shape))
                assert all(
                    source.coords[dim].shape == (extent,)
                    for dim, extent in zip(source.dims, shape, strict=False)
                    if dim in source.coords
                )
                for box in (*_some_boxes(shape, chosen), tuple(map(range, shape))):
                    np.testing.assert_array_equal(source.read(box), values[slices(box)])

    def test_boxes_are_written_at_once_and_lie_where_that_is_told(self, tmp_path: Path) -> None:
        """As many threads as a sink takes write boxes in any order; spans are where it says."""
        values, path = self.values(self.shapes[-1], self.dtypes[0]), tmp_path / self.file
        output = self.format.create_output(path)
        with closing(output):
            sink = output.array(self.array(values))
            every = [*_whole_boxes(sink, values.shape, 2000)]
            if sink.at_once > 1:
                random.Random(5).shuffle(every)
            with ThreadPoolExecutor(sink.at_once) as threads:
                parts = [threads.submit(sink.write, box, values[slices(box)]) for box in every]
                for part in parts:
                    part.result()
            offset = sink.offset
            output.commit()
        with closing(open_file(self.input(path, values))) as source:
            np.testing.assert_array_equal(source.read(tuple(map(range, values.shape))), values)
        if offset is not None:
            stored = path.read_bytes()[offset : offset + values.nbytes]
            assert stored == values.tobytes()

    # What goes wrong.

    def test_what_lacks_a_part_is_refused(self, tmp_path: Path) -> None:
        """A file that was cut off, or a store that is being written, gives an error, no values."""
        values, path = self.values(self.shapes[-1], self.dtypes[0]), tmp_path / self.file
        self.write(path, values)
        self.spoil(path)

        def read() -> None:
            with closing(open_file(self.input(path, values))) as source:
                source.read(tuple(map(range, values.shape)))

        _raises(Error, read)

    def test_what_is_no_file_of_the_format_is_refused(self, tmp_path: Path) -> None:
        """Other bytes give an error that names the file."""
        values, path = self.values(self.shapes[0], self.dtypes[0]), tmp_path / self.file
        path.write_bytes(b"no such thing" * 99)
        error = _raises(Error, lambda: open_file(self.input(path, values)).close())
        assert self.file in str(error)

    def test_a_fault_leaves_the_file_that_was_there(self, tmp_path: Path) -> None:
        """Where values cannot be read on the way, the old file stays, and nothing beside it."""
        if not self.format.writes:
            return
        values, path = self.values(self.shapes[-1], self.dtypes[0]), tmp_path / self.file
        self.write(path, values)
        before = _content(path)
        for number in range(3):
            convert = partial(self._convert, values + 1, path, _nth(number, _fail))
            _raises(StoreError, convert)
            assert _content(path) == before
            assert [*tmp_path.iterdir()] == [path]

    def test_a_kill_leaves_the_file_that_was_there(self, tmp_path: Path) -> None:
        """Killed at any box; the next one removes what was left."""
        if not self.format.writes:
            return
        old = self.values(self.shapes[-1], self.dtypes[0])
        new, path = old + old.dtype.type(1), tmp_path / self.file
        self.write(path, old)
        for number in range(3):
            convert = partial(self._convert, new, path, _nth(number, _kill))
            assert _in_a_child(convert) == -signal.SIGKILL
            with closing(open_file(self.input(path, old))) as source:
                there = source.read(tuple(map(range, old.shape)))
                np.testing.assert_array_equal(there, old)
            assert len([*tmp_path.iterdir()]) == 2
        self._convert(new, path)
        with closing(open_file(self.input(path, new))) as source:
            np.testing.assert_array_equal(source.read(tuple(map(range, new.shape))), new)
        assert [*tmp_path.iterdir()] == [path]

    # Runs.

    def test_a_run_begins_with_its_values_is_stopped_and_resumed(self, tmp_path: Path) -> None:
        """To the bytes of a run that begins with the array and is not stopped."""
        values, path = self.values(self.shapes[0], "float32"), tmp_path / self.file
        self.write(path, values)

        given: dict[str, Any] = {"memory": "400MiB", "tier": "direct", "depth": 1}
        plain = run(_problem(values.shape, values), out=tmp_path / "plain", **given)

        out, posed = tmp_path / "stopped", _problem(values.shape, self.input(path, values))
        _raises(Stopped, lambda: run(posed, out=out, stop_after=1e-9, **given))
        result = resume(out)
        assert np.asarray(result["u"]).tobytes() == np.asarray(plain["u"]).tobytes()

    def test_plans_count_what_reads_it(self, tmp_path: Path) -> None:
        """Its libraries are in the memory of a plan, and what decoding costs in its notes."""
        values, path = self.values(self.shapes[0], "float32"), tmp_path / self.file
        self.write(path, values)

        with_file, without = (
            plan(_problem(values.shape, initial), memory="400MiB")
            for initial in (self.input(path, values), 0.0)
        )
        extra = with_file.memory.fixed_bytes - without.memory.fixed_bytes
        assert extra == self.format.library_bytes
        with closing(open_file(self.input(path, values))) as source:
            decoded = source.at_once == 1
        assert any("u is decoded from" in note for note in with_file.notes) == decoded

    def _kinds(self) -> Iterator[tuple[tuple[int, ...], str]]:
        yield from ((shape, self.dtypes[0]) for shape in self.shapes)
        yield from ((self.shapes[0], dtype) for dtype in self.dtypes[1:])

    def _convert(
        self, values: NDArray[Any], path: Path, told: Callable[[int], object] | None = None
    ) -> None:
        """Write values to a file, in place of what is there, as exports do."""
        filing = Filing(path, overwrite=True)
        try:
            with closing(self.format.create_output(filing.partial)) as output:
                sink = output.array(self.array(values))
                copy(ArraySource(values), sink, LEAST_MEMORY_BYTES, told)
                output.commit()
            filing.place()
        finally:
            filing.remove()


def _problem(shape: tuple[int, ...], initial: Any) -> Problem:
    """Three steps of diffusion."""
    stencil = "heat7" if len(shape) == 3 else "heat5"
    start = {"u": initial}
    return Problem(stencil, shape, "float32", 3, parameters={"k": 0.1}, initial=start)


def _some_boxes(shape: tuple[int, ...], choose: random.Random) -> Iterator[Box]:
    for _ in range(20):
        yield tuple(
            range(*sorted(choose.sample(range(extent + 1), 2))) if extent else range(0)
            for extent in shape
        )


def _whole_boxes(sink: Sink, shape: tuple[int, ...], cells: int) -> Iterator[Box]:
    """Boxes of whole chunks, of about so many cells."""
    chunk = tuple(map(min, sink.chunk, shape))
    return boxes([*map(range, shape)], chunk, max(cells, prod(chunk)))


def _nth(number: int, act: Callable[[], object]) -> Callable[[int], object]:
    """What hears of each box that was written, and acts at one of them, counted from 0."""
    count = itertools.count()
    return lambda _: act() if next(count) == number else None


def _fail() -> None:
    raise StoreError("no more of it", path="on purpose")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _in_a_child(act: Callable[[], object]) -> int:
    """Act in a process of its own: 0, or the number of the signal that ended it, below 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that this process has, and the other has not
        child = os.fork()
    if not child:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _content(path: Path) -> dict[str, bytes]:
    """All bytes of a file, or of those in a folder, by name."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def _raises(kind: type[Error], act: Callable[[], object]) -> Error:
    """The error that an action has to raise."""
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
