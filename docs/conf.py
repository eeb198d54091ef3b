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
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_extension"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_maximum_signature_line_length = 88

html_theme = "pydata_sphinx_theme"
html_title = "outgrid"
html_static_path = ["_static"]
html_css_files = ["outgrid.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": []}
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
