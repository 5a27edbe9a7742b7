"""The examples of docstrings run, and so do the programs of the pages around them."""

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest
from test_guide import check

import flashcliff

PAGES = Path(__file__).parents[3] / "docs" / "python"
PACKAGES = {"flashcliff.atoms._neighbours": "vesin", "flashcliff.jax": "jax", "flashcliff._jax": "jax", "flashcliff._derived.jax": "jax"}
"""What modules need that need not be installed, by the starts of their names."""
in_repository = pytest.mark.skipif(
    not PAGES.exists(), reason="a source distribution holds the package alone"
)


def modules():
    """All modules of the package but those that need something compiled, or run when they are imported."""
    names = [module.name for module in pkgutil.walk_packages(flashcliff.__path__, "flashcliff.")]
    absent = [start for start, package in PACKAGES.items() if importlib.util.find_spec(package) is None]
    # Libraries of a wheel for other versions of PyTorch are no modules by these names.
    libraries = "flashcliff._native.torch_"
    skipped = ("flashcliff._core", "flashcliff.__main__", libraries, *absent)
    return ["flashcliff", *(name for name in names if not name.startswith(skipped))]


def test_examples_of_docstrings():
    attempted = 0
    for name in modules():
        result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, name
        attempted += result.attempted
    assert attempted >= 12


def test_a_wrong_example_is_found():
    parser = doctest.DocTestParser()
    test = parser.get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


@in_repository
@pytest.mark.parametrize("page", sorted(PAGES.glob("**/*.md")), ids=lambda page: page.stem)
def test_programs_of_pages(page, capsys):
    check(page.read_text(encoding="utf-8"), page.name, capsys)


@in_repository
def test_every_public_module_has_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("api/*.md"))
    for name in flashcliff.__all__:
        value = getattr(flashcliff, name)
        kind = "automodule" if name in flashcliff._MODULES else "auto"
        documented = f"flashcliff.{name}\n" in pages and kind in pages
        assert documented or isinstance(value, (str, type)), name
    for part in ("nn.models", "nn.transformer", "compat.cgenn", "compat.gatr", "compat.lgatr"):
        assert f".. automodule:: flashcliff.{part}\n" in pages, part
