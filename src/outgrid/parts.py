"""The parts that a run is made of, for programs that measure or replay one of them alone.

`outgrid` is for who has a problem; this page is the door for who looks inside, such as the
measurements in `benchmarks/`. What stands here may change from one version to the next, and the
change log says so; what stands neither here nor in `outgrid` changes without a word.
"""

from outgrid.build.compiler import build, find_compiler, vector_bytes
from outgrid.codegen.cuda import generate_cuda
from outgrid.codegen.kernel import generate, row_groups
from outgrid.codegen.masks import mask_fields
from outgrid.comm import Comm, Rows, world
from outgrid.config import RunOptions
from outgrid.execute.fill import InitialValues, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.kernels import load_kernel
from outgrid.execute.moves import Hierarchy
from outgrid.execute.streaming import Callbacks, stream
from outgrid.execute.window import Window
from outgrid.machines import Site, read_site
from outgrid.matrix.onto import Upload
from outgrid.matrix.product import StreamedMatrix
from outgrid.matrix.sources import SOURCES
from outgrid.matrix.stages import Event
from outgrid.matrix.striped import lay_out
from outgrid.plan.model import Plan, Tile
from outgrid.plan.onchip import tile_of
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, Instruction, program, row_updates
from outgrid.plan.schedule.lifetime import ring_count
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.tiling import (
    FRONT_PLANES,
    asking_for,
    band_rows,
    bands_cut,
    columns_cut,
    tile_levels,
    tile_slope,
)
from outgrid.planning import FIXED_BYTES, calibration, plan_elsewhere
from outgrid.runs.single import leave_file, take_apart
from outgrid.runs.zarr import leave_group
from outgrid.stencil.catalog import lookup, resolve
from outgrid.stencil.definition import Definition
from outgrid.stencil.expression import accesses
from outgrid.stencil.folded import folding_of
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.model import Stencil
from outgrid.stencil.symbol import AXES, FieldSymbol, Operand, Symbol

__all__ = [
    "AXES",
    "FIXED_BYTES",
    "FRONT_PLANES",
    "SOURCES",
    "Advance",
    "Arrival",
    "Callbacks",
    "Comm",
    "Definition",
    "Event",
    "FieldSymbol",
    "Hierarchy",
    "InitialExpression",
    "InitialValues",
    "Instruction",
    "Kernel",
    "Operand",
    "Plan",
    "Rows",
    "RunOptions",
    "SeamKey",
    "Site",
    "Stencil",
    "StreamedMatrix",
    "Symbol",
    "Tile",
    "Upload",
    "Window",
    "accesses",
    "asking_for",
    "band_rows",
    "bands_cut",
    "build",
    "calibration",
    "columns_cut",
    "evaluate",
    "fill",
    "find_compiler",
    "folding_of",
    "generate",
    "generate_cuda",
    "lay_out",
    "leave_file",
    "leave_group",
    "load_kernel",
    "lookup",
    "mask_fields",
    "plan",
    "plan_elsewhere",
    "program",
    "read_site",
    "resolve",
    "ring_count",
    "row_groups",
    "row_updates",
    "stream",
    "take_apart",
    "tile_levels",
    "tile_of",
    "tile_slope",
    "vector_bytes",
    "world",
]
