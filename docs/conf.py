"""Settings of the documentation: `make docs` builds it into build/docs."""

import sys
from pathlib import Path

from outgrid.version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extension"))

project = "outgrid"
author = "the outgrid developers"
version = release = __version__
extensions = [
    "generated",
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_extension", "**.run", "tutorials/GALLERY_HEADER.rst"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples/tutorials",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),
    "ignore_repr_types": r"matplotlib\..*",
    "image_scrapers": ("matplotlib", "figures.last_figure"),
    "download_all_examples": False,
    "min_reported_time": 3600,
    "show_memory": False,
    "within_subsection_order": "FileNameSortKey",
    "show_signature": False,
}

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_maximum_signature_line_length = 88

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "outgrid"
html_static_path = ["_static"]
html_css_files = ["outgrid.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 5,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {page: [] for page in ("index", "start", "gallery", "changes", "contributing")}
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
