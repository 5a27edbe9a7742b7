"""The examples of docstrings run, and so do the programs of the pages around them."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from releases import is_before
from test_guide import check

import flashcliff
from flashcliff._derived.choices import CHOICES
from flashcliff._derived.table import OPS
from flashcliff._ops.op import operator

PAGES = Path(__file__).parents[3] / "docs" / "python"
PACKAGE = Path(flashcliff.__file__).parent
WITH_EXAMPLES = ("functional", "nn", "nn.convolution", "nn.models", "nn.transformer", "optim", "rotors")
"""Modules whose public functions or classes all have an example."""
PACKAGES = {"flashcliff.atoms._neighbours": "vesin", "flashcliff.graphs.geometric": "torch_geometric", "flashcliff.jax": "jax", "flashcliff._jax": "jax", "flashcliff._derived.jax": "jax", "flashcliff._triton": "triton"}
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
    if is_before("2.9"):
        # There is no torch.optim.Muon.
        absent.append("flashcliff.optim._muon")
    skipped = ("flashcliff._core", "flashcliff.__main__", libraries, *absent)
    return ["flashcliff", *(name for name in names if not name.startswith(skipped))]


def test_examples_of_docstrings():
    attempted = 0
    for name in modules():
        result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, name
        attempted += result.attempted
    assert attempted >= 400


def undocumented(text):
    """The public classes of a module without a docstring, and those whose `forward` has none that shows a shape."""
    found = []
    for owner in ast.parse(text).body:
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_"):
            if not ast.get_docstring(owner):
                found.append(owner.name)
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward":
                    if "``[" not in (ast.get_docstring(method) or ""):
                        found.append(f"{owner.name}.forward")
    return found


@pytest.mark.parametrize("part", ["nn", "compat"])
def test_layers_say_what_their_calls_return(part):
    files = [path for path in sorted((PACKAGE / part).rglob("*.py")) if "described" not in path.parts]
    assert len(files) > 20
    missing = {str(path.relative_to(PACKAGE)): undocumented(path.read_text(encoding="utf-8")) for path in files}
    assert not {path: names for path, names in missing.items() if names}


def test_a_layer_without_words_is_found():
    text = 'class Layer:\n    """A layer."""\n    def forward(self, x):\n        """Applies it."""\nclass Bare:\n    pass\n'
    assert undocumented(text) == ["Layer.forward", "Bare"]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_public_names_have_examples(name):
    module = importlib.import_module(f"flashcliff.{name}")
    classes_only = name.startswith("nn")
    named = {own: getattr(module, own) for own in module.__all__}
    shown = {own: value for own, value in named.items() if isinstance(value, type) or not classes_only and callable(value)}
    assert len(shown) >= 5
    assert [own for own, value in shown.items() if ">>>" not in (inspect.getdoc(value) or "")] == []


BLOCK = ("Raises:", "- Types: ", "- Deterministic: ", "- Derivatives: ", "- Commutes with: ", "- Source: ", "Example:")


@pytest.mark.parametrize("name", flashcliff.functional.__all__)
def test_functions_have_the_whole_block(name):
    text = inspect.getdoc(getattr(flashcliff.functional, name))
    places = [text.find(part) for part in ("tensor", "algebra: ", *BLOCK)]
    assert -1 not in places and places == sorted(places)


def test_a_wrong_example_is_found():
    parser = doctest.DocTestParser()
    test = parser.get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


def accepted(op, option):
    """The names of an option that an operator of space accepts."""
    found = set()
    for name in (*CHOICES[option.name], "none"):
        options = [name if other is option else other.default for other in op.options]
        try:
            operator(op, "cl300", op.everything, tuple(options))
        except ValueError:
            continue
        found.add(name)
    return found


OPTIONS = [(op, option) for op in OPS for option in op.options if option.name in CHOICES]
options = pytest.mark.parametrize("op, option", OPTIONS, ids=[f"{op.name}-{option.name}" for op, option in OPTIONS])


@options
def test_docstrings_name_what_options_accept(op, option):
    args = getattr(flashcliff.functional, op.name).__doc__.split("Args:")[1]
    entry = re.search(rf"^ +{option.name}: (.*?)(?=^ {{4,8}}\w+: |^ {{4}}\w|\Z)", args, re.M | re.S)[1]
    assert set(re.findall(r"``(\w+)``:", entry)) == accepted(op, option)


@in_repository
@options
def test_the_guide_names_what_options_accept(op, option):
    page = (PAGES.parent / "guide/src/operators.md").read_text(encoding="utf-8")
    entry = page.split(f"#### `{op.name}`\n")[1].split("####")[0]
    listed = re.search(rf"`{option.native}` \((.*?)\)", " ".join(entry.split()))[1]
    names, _, refused = listed.partition(", without ")
    names = names.split("; in Python")[0]
    assert set(re.findall(r"`(\w+)`", names)) - set(re.findall(r"`(\w+)`", refused)) == accepted(op, option)


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
    for part in ("nn.convolution", "nn.models", "nn.transformer", "compat.cgenn", "compat.gatr", "compat.lgatr"):
        assert f".. automodule:: flashcliff.{part}\n" in pages, part
