"""The pages of the Python package: its docstrings, and the chapters of the guide as they stand in `docs/guide/src`.

    python -m sphinx -W --keep-going -c docs/python docs target/python-docs

The package must be importable, with PyTorch. `flashcliff` is documented as it is installed, not from its sources.
"""

from __future__ import annotations

import importlib.util
import re

import flashcliff

project = "flashcliff"
version = release = flashcliff.__version__
copyright = "its authors; licence: MIT or Apache-2.0, at your choice"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Sources are below `docs`, where the guide is too.
root_doc = "python/index"
include_patterns = ["python/**.md", "guide/src/*.md"]
exclude_patterns = ["guide/src/SUMMARY.md"]
nitpicky = False

html_theme = "alabaster"
html_title = f"flashcliff {release}"
html_show_sphinx = False

myst_heading_anchors = 4
# It need not be installed.
autodoc_mock_imports = [] if importlib.util.find_spec("torch_geometric") else ["torch_geometric"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_numpy_docstring = False
# Attributes are documented where they stand.
napoleon_use_ivar = True

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./((?:\.\./)?)([^)#]*)[^)]*\)")


def _for_sphinx(app: object, name: str, source: list[str]) -> None:
    """A chapter of the guide for Sphinx: words that tests read in fences go, links to the repository become paths."""
    if not name.startswith("guide/"):
        return
    page = re.sub(r"^```(\w+),\w+$", r"```\1", source[0], flags=re.M)

    def path(link: re.Match[str]) -> str:
        words, up, rest = link.groups()
        return f"{words} (`{rest if up else 'docs/' + rest}`)"

    source[0] = _OUTSIDE.sub(path, page)


def setup(app: object) -> None:
    app.connect("source-read", _for_sphinx)  # type: ignore[attr-defined]
