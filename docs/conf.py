"""The documentation site: ``make docs`` builds it into build/site, warnings are errors."""

import os
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project, release = _PROJECT["name"], _PROJECT["version"]
author = "the hushrec authors"
copyright = f"{datetime.now(UTC).year}, {author}"
html_title = f"{project} {release}"

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_nb",
    "docs._ext.mathml",
    "docs._ext.pages",
    "docs._ext.reference",
    "docs._ext.execute",
    "docs._ext.links",
]
exclude_patterns = ["_ext", "**.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
# the notebook of docs/start is run in every build, as its other pages are (docs/_ext/execute.py),
# the long ones in `make docs NOTEBOOKS=1`
nb_execution_mode = "force"
nb_execution_excludepatterns = [] if os.environ.get("HUSHREC_NOTEBOOKS") else ["understand/notebooks/*"]
smartquotes = False
highlight_language = "none"  # a block without a language is text
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "icon_links": [
        {"name": "Repository", "url": _PROJECT["urls"]["Repository"], "icon": "fa-brands fa-github"}
    ],
}
html_sidebars = {"index": []}
