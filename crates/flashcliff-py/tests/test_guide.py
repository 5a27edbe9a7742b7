"""The Python programs of the guide run, and print what the guide says.

The blocks of a chapter run in order, in one namespace. The language of a block says what must hold:

- ``python``: it runs.
- ``python,error``: it raises.
- ``python,gpu``: it compiles, and runs where there is a GPU.
- ``diff``: what it makes of the old program runs: all lines but those that begin with ``-``.
- ``text`` right after one of these: what was printed, or the type and message of the error. ``...`` stands for any text.
"""

import doctest
import re
import sys
import types
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import flashcliff

CHAPTERS = Path(__file__).parents[3] / "docs" / "guide" / "src"
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
RUN = ("python", "python,error", "python,gpu", "diff")
PACKAGES = {"atoms": ("ase", "vesin"), "export": ("onnx", "onnxruntime"), "geometric": ("torch_geometric",), "jax": ("jax",)}
"""What a chapter needs that need not be installed."""
HAS_GPU = torch.cuda.is_available() and bool(flashcliff.build_info()["cuda"])


class Block(NamedTuple):
    language: str
    program: str
    printed: str | None
    """What the text shows right after it, if it shows something."""


def blocks(page):
    """The programs of a page, each with the output that follows it."""
    fences = list(FENCE.finditer(page))
    found = []
    for fence, after in zip(fences, [*fences[1:], None]):
        language, text = fence.groups()
        if language not in RUN:
            continue
        if language == "diff":
            text = "\n".join(line[1:] for line in text.splitlines() if not line.startswith("-"))
        shown = None
        if after and after[1] == "text" and not page[fence.end() : after.start()].strip():
            shown = after[2]
        # Empty lines in front, so that tracebacks and warnings name the line of the page.
        lines = page.count("\n", 0, fence.start()) + 1
        found.append(Block(language, "\n" * lines + text, shown))
    return found


def check(page, name, capsys):
    """Runs the programs of a page and compares what they print."""
    module = types.ModuleType("guide")
    # PyTorch Geometric looks up the module of a class.
    sys.modules["guide"] = module
    namespace = vars(module)
    for block in blocks(page):
        code = compile(block.program, name, "exec")
        if block.language == "python,gpu" and not HAS_GPU:
            continue
        got = run(code, namespace, block.language == "python,error", capsys)
        if block.printed is not None:
            assert agree(block.printed, got), (
                f"expected:\n{block.printed}\ngot:\n{got}\nfrom:\n{block.program.lstrip()}"
            )


def run(code, namespace, raises, capsys):
    """The output of a program, warnings after it, or the error that it must raise."""
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", flashcliff.EquivarianceWarning)
        try:
            exec(code, namespace)
        except Exception as raised:
            if not raises:
                raise
            error = raised
    printed = capsys.readouterr().out
    for warning in caught:
        if issubclass(warning.category, flashcliff.EquivarianceWarning):
            printed += f"{warning.category.__name__}: {warning.message}\n"
    assert not raises or error, "expected an error, got none"
    return printed if error is None else f"{printed}{type(error).__name__}: {error}\n"


def agree(shown, printed):
    """Whether a text shows what was printed. Lines may be broken elsewhere."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, options)


def chapters():
    return [path.stem for path in sorted(CHAPTERS.glob("*.md"))]


@pytest.fixture(autouse=True)
def _warnings_are_said_anew(monkeypatch):
    monkeypatch.setattr("flashcliff._ops.surprises._SAID", set())


@pytest.mark.skipif(not CHAPTERS.exists(), reason="a source distribution holds the package alone")
@pytest.mark.parametrize("chapter", chapters() or ["none"])
def test_chapter(chapter, capsys):
    path = CHAPTERS / f"{chapter}.md"
    for needed in PACKAGES.get(chapter, ()):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    check(path.read_text(encoding="utf-8"), path.name, capsys)


def test_every_language_of_a_block_is_found():
    page = "".join(f"```{language}\n pass\n```\n" for language in (*RUN, "rust", "sh"))
    assert [block.language for block in blocks(page)] == list(RUN)


def test_a_diff_is_its_new_program():
    (block,) = blocks("```diff\n-import theirs\n+import ours\n\n print(1)\n```\n")
    assert block.program.strip() == "import ours\n\nprint(1)"


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python,error\nint('x')\n```\n\n```text\nValueError: other\n```\n",
        "```python,error\nprint(1)\n```\n",
        "```python,gpu\n1 +\n```\n",
        "```diff\n+raise OSError\n```\n",
        "```python\nraise OSError\n```\n",
        "```python\nx = 1\n```\n\n```text\n1\n```\n",
    ],
)
def test_a_page_that_is_wrong_fails(page, capsys):
    with pytest.raises((AssertionError, OSError, SyntaxError)):
        check(page, "page", capsys)


def test_blocks_share_names_and_text_apart_from_a_block_is_not_its_output(capsys):
    check(
        "```python\nx = 1\n```\nThe value:\n```python\nprint(x)\n```\n```text\n1\n```\n"
        "Said:\n```text\n2\n```\n",
        "page",
        capsys,
    )
