"""The notebooks of `docs/notebooks` run: the code cells of each in order, in one namespace, without Jupyter.

Cells check what they show by `assert`. No outputs are stored, so none name folders of a machine. The gallery lists all
notebooks and all examples.
"""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
GALLERY = (DOCS / "guide" / "src" / "gallery.md").read_text()
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
LARGEST = 15_000
"""The bytes that a notebook may have."""


def cells(path, kind):
    """The sources of the cells of a kind."""
    given = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in given if cell["cell_type"] == kind]


def test_the_gallery_lists_all_notebooks_and_examples():
    assert NAMES == sorted(re.findall(r"notebooks/([\w-]+)\.ipynb", GALLERY))
    examples = {path.name for path in (Path(__file__).parents[1] / "examples").glob("*.*")}
    assert examples == set(re.findall(r"`(\w+\.(?:py|cpp))`", GALLERY))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_runs(path):
    code = cells(path, "code")
    assert sum("assert " in own for own in code) > len(code) / 2
    namespace = {"__name__": path.stem}
    for place, own in enumerate(code):
        exec(compile(own, f"{path.name}, code cell {place}", "exec"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_is_small_and_stores_no_outputs(path):
    text = path.read_text()
    notebook = json.loads(text)
    assert (notebook["nbformat"], len(text.encode()) < LARGEST) == (4, True)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", "\n".join(cells(path, "markdown"))):
        assert (path.parent / target).exists(), target
