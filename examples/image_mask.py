"""Smoothing of a picture by a mask of weights around each pixel, also of one beyond memory.

A picture comes from a TIFF file or a zarr array, of which only some rows are in memory, or
from anything else that matplotlib reads, and goes to a TIFF file or a zarr array (`pip install
tifffile zarr`). Without one it is the portrait of Grace Hopper that matplotlib ships. Pixels nearer
to the edge than half the mask stay as they are.

Checked: the values are those of scipy.ndimage.correlate with the same weights.
"""

import contextlib
from pathlib import Path

import numpy as np

import outgrid as og

ROWS, TILE = 512, 512  # read at once; pixels of an edge of a tile that is written


def weights(width):
    """A Gaussian bell of `width` times `width` weights with sum 1."""
    places = np.arange(width) - width // 2
    bell = np.exp(-2 * (places / max(1, width // 4)) ** 2)
    mask = np.outer(bell, bell)
    return mask / mask.sum()


def smoothing(width):
    """The weighted mean over a square around each pixel."""
    mask, half = weights(width), width // 2

    @og.stencil(name=f"mask{width}", ndim=2)
    def rule(u):
        terms = [
            float(mask[y, x]) * u[y - half, x - half] for y in range(width) for x in range(width)
        ]
        return sum(terms[1:], terms[0])

    return rule


def problem(pixels, width=3, steps=2, dtype="float64", shape=None):
    """Smooth `pixels`, an array, or a .npy file of `shape`."""
    return og.Problem(
        smoothing(width), shape or pixels.shape, dtype, steps, {}, "frozen", {"u": pixels}
    )


def portrait():
    """Brightness from 0 to 255."""
    from matplotlib import cbook, image

    with cbook.get_sample_data("grace_hopper.jpg") as file:
        return image.imread(file).mean(axis=2)


@contextlib.contextmanager
def opened(path):
    """A picture as rows that are read when they are sliced."""
    if path.suffix == ".zarr":
        import zarr

        yield zarr.open_array(path, mode="r")
    elif path.suffix in (".tif", ".tiff"):
        import tifffile
        import zarr

        with tifffile.imread(path, aszarr=True) as store:
            yield zarr.open_array(store, mode="r")
    else:
        from matplotlib import image

        yield image.imread(path)


def read(path, into):
    """Write the brightness of a picture as float32 into a .npy file, some rows at a time."""
    with opened(path) as picture, into.open("wb") as file:
        shape = picture.shape[:2]
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, shape[0], ROWS):
            rows = np.asarray(picture[first : first + ROWS], np.float32)
            file.write((rows if rows.ndim == 2 else rows[..., :3].mean(axis=2)).tobytes())
    return shape


def write(pixels, path):
    """Write brightness, rounded to 0..255, as a TIFF file or a zarr array, a tile at a time."""
    write_tiles(path, pixels.shape, lambda rows, columns: pixels[rows, columns])


def write_tiles(path, shape, values):
    """Write a picture of `shape`, whose `values` are asked for by rows and columns."""
    parts = [[slice(n, min(n + TILE, extent)) for n in range(0, extent, TILE)] for extent in shape]

    def rounded(rows, columns):
        return np.clip(np.rint(values(rows, columns)), 0, 255).astype(np.uint8)

    if path.suffix == ".zarr":
        import zarr

        array = zarr.create_array(path, shape=shape, chunks=(TILE, TILE), dtype="uint8")
        for rows in parts[0]:
            for columns in parts[1]:
                array[rows, columns] = rounded(rows, columns)
        return
    import tifffile

    tiles = (rounded(rows, columns) for rows in parts[0] for columns in parts[1])
    tifffile.imwrite(
        path, tiles, shape=shape, dtype="uint8", tile=(TILE, TILE), photometric="minisblack"
    )


def mosaic(path, edge):
    """Write a picture of `edge` by `edge` pixels: the portrait, again and again."""
    face = portrait()

    def values(rows, columns):
        indices = (
            np.arange(part.start, part.stop) % n
            for part, n in zip((rows, columns), face.shape, strict=True)
        )
        return face[np.ix_(*indices)]

    write_tiles(path, (edge, edge), values)


def peer(pixels, width=3, steps=2):
    """The same by SciPy."""
    from scipy import ndimage

    pixels, half = pixels.copy(), width // 2
    inside = (slice(half, -half),) * 2
    for _ in range(steps):
        pixels[inside] = ndimage.correlate(pixels, weights(width))[inside]
    return pixels


def draw(before, after, path):
    """A part of the picture before and after."""
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(6, 3.9), layout="constrained")
    for axes, pixels, name in zip(both, (before, after), ("before", "after"), strict=True):
        axes.imshow(pixels[:600, :512], cmap="gray", vmin=0, vmax=255)
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    from command import apart, arguments, run

    given = arguments(
        __doc__,
        input={"type": Path, "help": "picture: .tif, .zarr, or what matplotlib reads"},
        output={"type": Path, "help": "the smoothed picture, .tif or .zarr"},
        size={"type": int, "help": "first write INPUT, a mosaic of so many rows and columns"},
        width={"type": int, "default": 15, "help": "pixels of an edge of the mask"},
        steps={"type": int, "default": 2, "help": "how often"},
    )
    start = Path("image_mask.npy")
    if given.size and not given.input:
        raise SystemExit("--size writes a mosaic: say where to, --input mosaic.tif")
    if given.size:
        apart(mosaic, given.input, given.size)
    if given.input:
        shape = apart(read, given.input, start)
    else:
        pixels = portrait().astype(np.float32)
        np.save(start, pixels)
        shape = pixels.shape
    result = run(problem(start, given.width, given.steps, "float32", shape), given)
    part = np.load(start, mmap_mode="r")[:2048, :2048].astype(np.float64)
    reach = 0 if part.shape == shape else given.steps * (given.width // 2)
    inside = tuple(slice(0, n - reach) for n in part.shape)
    expected = peer(part, given.width, given.steps)[inside]
    difference = abs(result["u"][inside] - expected).max()
    print(
        f"largest difference from SciPy {difference:.1e}, of values up to 255 in single precision"
    )
    if given.output:
        write(result["u"], given.output)
    if given.picture:
        draw(part, result["u"], given.picture)
    start.unlink()
