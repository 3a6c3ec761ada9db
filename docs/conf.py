"""The site of the documents: `make docs`.

The source is the whole project, so that a link of a page leads to the same file on the site, in an
editor and on a forge. What is linked and is no page (a source, the licence) is copied beside them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "TTrace"
copyright = "The TTrace authors"
version = re.findall(r"project\(ttrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[0]
release = version

root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "zoo/README.md", "bench/README.md"]
exclude_patterns = [".*", "build*", "matrix", "sweep", "**/__pycache__"]

extensions = ["myst_parser"]
myst_heading_anchors = 4
# What a page names and what is not there ends the build, anchors included: see scripts/docs.sh.
nitpicky = True
# Quotes and dashes are what commands and reports print; and it is a fifth of the time.
smartquotes = False

html_theme = "furo"
html_title = f"TTrace {version}"
html_static_path = ["site/static"]
html_css_files = ["wide_tables.css"]
# So that the folder opens at its first page.
html_extra_path = ["site/index.html"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# Examples of reports are neither Python nor a shell.
highlight_language = "none"
