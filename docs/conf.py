"""How Sphinx builds the site: `sphinx-build -W -n docs docs/_build/site`. Nothing is fetched from the network."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# This checkout is documented, whatever is installed; notebooks run in processes of their own.
sys.path[:0] = [str(Path(__file__).parent / "extensions"), str(ROOT)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

import robustkit

project = "robustkit"
author = "The robustkit authors"
copyright = author
version = release = robustkit.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_click",
    "sphinx_copybutton",
    "docstrings",
    "generated_pages",
    "public_names",
]
# README.md is the folder's page on GitHub and says how to build the site.
exclude_patterns = ["_build", "README.md", "extensions", "**.ipynb_checkpoints"]
highlight_language = "text"  # indented blocks are commands with their output
suppress_warnings = ["myst.xref_ambiguous"]

# Docstrings are prose with `code` in single backquotes.
default_role = "code"
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_merge_streams = True

maximum_signature_line_length = 100
smartquotes = False  # texts in quotes are to be copied

html_theme = "furo"
html_title = "robustkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
