"""The page of what runs where says what the table of operators says."""

import ast
import re
from pathlib import Path

import pytest

import flashcliff.functional
from flashcliff._derived.table import OPS
from flashcliff._ops.op import operator

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "support.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="a source distribution holds the package alone")


def rows():
    """The derivatives, autocast and Triton of each function on the page."""
    text = PAGE.read_text(encoding="utf-8")
    block = text.partition("<!-- operators")[2].partition("<!-- end -->")[0]
    found = {}
    for line in block.splitlines():
        if line.startswith("| `"):
            names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found.update(dict.fromkeys(re.findall(r"`(\w+)`", names), cells))
    return found


def test_every_function_has_a_row():
    assert sorted(rows()) == sorted(flashcliff.functional.__all__)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_rows_say_what_operators_do(op):
    derivatives, autocast, triton = rows()[op.name]
    assert (derivatives == "zero") == op.linear
    assert (autocast == "in its type") == op.autocast
    made = operator(op, "cl300", op.everything, tuple(option.default for option in op.options))
    assert (derivatives == "operations of PyTorch") == made.has_matrix_products
    assert (triton == "yes") == (made.triton() is not None)


@pytest.mark.parametrize(
    "path, written",
    [
        ("crates/flashcliff-candle/src/functional/operators.rs", "pub fn {}("),
        ("crates/flashcliff/src/ops/functions.rs", "pub fn {}("),
        ("crates/flashcliff-c/include/flashcliff.h", '"{}"'),
    ],
)
def test_hosts_have_every_operator(path, written):
    text = (ROOT / path).read_text(encoding="utf-8")
    assert [op.name for op in OPS if written.format(op.name) not in text] == []


@pytest.mark.parametrize("host", ["arrays", "jax"])
def test_modules_of_arrays_have_every_function(host):
    path = Path(flashcliff.__file__).parent / "_derived" / f"{host}.py"
    named = {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
    assert named == set(flashcliff.functional.__all__)
