"""Fields and snapshots of a result: arrays on disk that draw themselves."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats.axis import Axis
from outgrid.formats.shard import chunk_of
from outgrid.lines import format_extents
from outgrid.markup import facts
from outgrid.numbers import is_real
from outgrid.report.animation import animate
from outgrid.report.histogram import histogram
from outgrid.report.picture import field_figure
from outgrid.storage import Joined, Piece
from outgrid.units import format_bytes, suggest

__all__ = ["Field", "FieldArray", "JoinedField", "Snapshots"]


Meaning = tuple[tuple[Axis, ...], str]


def _nothing() -> Meaning:
    return (), ""


class Drawn:
    """What can be drawn: an array of two or three axes, and its ``name``.

    Where its cells lie and in which units is asked of ``meaning`` when it is drawn.
    """

    name: str = ""
    meaning: Callable[[], Meaning] = staticmethod(_nothing)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Where its cells lie along each axis; nothing where that is unknown."""
        return self.meaning()[0]

    @property
    def units(self) -> str:
        """The units of its values; nothing where they are unknown."""
        return self.meaning()[1]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Cells of a part that lies in one piece, along each axis: what dask reads at once."""
        shape: tuple[int, ...] = self._shown.shape
        dtype: np.dtype[Any] = self._shown.dtype
        return chunk_of(shape, dtype.itemsize) if shape else ()

    def plot(self, index: int | None = None) -> Any:
        """A `matplotlib.figure.Figure`, which notebooks show; large planes are sampled.

        Of three axes the plane ``index`` of the first one is shown, or the middle one; one axis is
        a curve. Raises UsageError for other shapes.
        """
        shape = self._shown.shape
        if len(shape) not in (1, 2, 3) or 0 in shape:
            raise UsageError(
                f"an array of shape {shape} cannot be drawn; 1, 2 or 3 axes must have more than "
                "one cell"
            )
        return field_figure(self._shown, self.name, self._axes, self.units, index)

    def hist(self, bins: int = 100) -> Any:
        """A `matplotlib.figure.Figure` of how often values occur, read plane by plane."""
        return histogram(self._shown, self.name, self.units, bins)

    @property
    def _shown(self) -> Any:
        return self

    @property
    def _axes(self) -> tuple[Axis, ...]:
        """Where cells lie; those of an array that was sliced are counted."""
        axes, ndim = self.axes, len(self._shown.shape)
        if len(axes) == ndim:
            return axes
        return tuple(Axis(name) for name in ("axis 0", "y", "x")[-ndim:])

    def _repr_html_(self) -> str:
        """What a notebook shows: name, shape, and a picture of the plane in the middle."""
        shape: tuple[int, ...] = self._shown.shape
        dtype: np.dtype[Any] = self._shown.dtype
        size = format_bytes(dtype.itemsize * math.prod(shape))
        rows = [("shape", format_extents(shape)), ("dtype", str(dtype)), ("size", size)]
        if self.units:
            rows.append(("units", self.units))
        picture = ""
        if len(shape) in (2, 3) and 0 not in shape and (dtype.kind in "iu" or is_real(dtype)):
            data = io.BytesIO()
            self.plot().savefig(data, dpi=60, format="png")
            text = base64.b64encode(data.getvalue()).decode()
            picture = f"<img alt='' src='data:image/png;base64,{text}'>"
        return facts(self.name or "array", rows, picture)


class FieldArray(Drawn, np.memmap):
    """An array that lies in a file and draws itself, as parts of it do."""

    _laid: tuple[Any, ...] = ()  # shape and strides of the whole array, whose axes are known

    @classmethod
    def of(
        cls, array: NDArray[Any], name: str, meaning: Callable[[], Meaning] = _nothing
    ) -> FieldArray:
        """The array under another class; nothing is read or copied."""
        field = array.view(cls)
        field.name, field.meaning, field._laid = name, meaning, (field.shape, field.strides)
        return field

    def __array_finalize__(self, source: Any) -> None:
        super().__array_finalize__(source)
        part = isinstance(source, FieldArray) and np.may_share_memory(self, source)
        self.name, self.meaning = (source.name, source.meaning) if part else ("", _nothing)
        self._laid = source._laid if part else ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Where its cells lie along each axis; nothing of a part, or of axes in another order."""
        return super().axes if (self.shape, self.strides) == self._laid else ()

    @property
    def _shown(self) -> NDArray[Any]:
        return self.view(np.ndarray)

    def animate(self, path: str | Path, seconds_per_frame: float = 0.1) -> Path:
        """Write the first axis as time: an animation .gif, .png or .mp4; its path.

        Of four axes the middle plane of each frame is shown. All frames have one scale, and of
        more than 600 every n-th is taken. .mp4 takes the command ffmpeg. Raises UsageError.
        """
        return animate(self._shown, Path(path), seconds_per_frame)


class JoinedField(Drawn, Joined):
    """A field in pieces that draws itself."""

    def __init__(
        self, pieces: Sequence[Piece], name: str, meaning: Callable[[], Meaning] = _nothing
    ) -> None:
        super().__init__(pieces)
        self.name, self.meaning = name, meaning


Field = FieldArray | JoinedField


class Snapshots(Sequence[FieldArray]):
    """What each snapshot kept, in the order of the problem; by the name of its field, too."""

    def __init__(self, kept: Iterable[FieldArray], fields: Sequence[str]) -> None:
        self._kept, self.fields = tuple(kept), tuple(fields)

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int | str) -> FieldArray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FieldArray]: ...
    def __getitem__(self, index: int | str | slice) -> FieldArray | Sequence[FieldArray]:
        return self._kept[self._number(index) if isinstance(index, str) else index]

    def _number(self, field: str) -> int:
        """The only snapshot of a field. Raises UsageError where there are none or several."""
        numbers = [number for number, of in enumerate(self.fields) if of == field]
        if not numbers:
            raise UsageError(f"the run has no snapshot of {field!r}{suggest(field, self.fields)}")
        if len(numbers) > 1:
            raise UsageError(
                f"{len(numbers)} snapshots of {field!r} exist; give the number of one: "
                f"{', '.join(map(str, numbers))}"
            )
        return numbers[0]
