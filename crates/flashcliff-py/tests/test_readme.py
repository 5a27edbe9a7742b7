"""The Python programs of the package's README run unchanged."""

import re
from pathlib import Path

import pytest
import torch

import flashcliff

README = Path(__file__).parents[1] / "README.md"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


BLOCKS = blocks(README)


def run(block, capsys):
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    return [float(word) for word in capsys.readouterr().out.split()]


@pytest.fixture(autouse=True)
def _single():
    assert torch.get_default_dtype() == torch.float32


def test_learned_weights(capsys):
    loss, mean = run(BLOCKS[0], capsys)
    assert loss < 1e-6 and abs(mean - 1) < 1e-4


def test_the_way_of_calls(capsys):
    exec(compile(BLOCKS[1], str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.strip() == flashcliff.native.state().said


@pytest.mark.filterwarnings("ignore::flashcliff.CaptureWarning")
def test_a_captured_step(capsys):
    first, last = run(BLOCKS[2], capsys)
    assert last < first


def test_a_model_of_cgenn(capsys):
    (off,) = run(BLOCKS[3], capsys)
    assert off < 1e-3


def test_weights_there_and_back(capsys):
    assert run(BLOCKS[4], capsys) == []


def test_accelerate(capsys):
    exec(compile(BLOCKS[5], str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == "nothing to replace\n"


def test_points_of_gatr_move_along(capsys):
    (off,) = run(BLOCKS[6], capsys)
    assert off < 1e-9


def test_a_profile(capsys):
    exec(compile(BLOCKS[7], str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "backward of linear_weight, linear_bias, weight " in printed and "in 4 calls of flashcliff" in printed


def test_all_blocks_are_run():
    assert len(BLOCKS) == 8


def test_the_programs_of_the_repositorys_readme(capsys):
    page = Path(__file__).parents[3] / "README.md"
    if not page.exists():
        pytest.skip("a source distribution holds the package alone")
    accelerate, layer = blocks(page)
    names = {"model": torch.nn.Linear(2, 2)}
    exec(compile(accelerate, str(page), "exec"), names)
    assert isinstance(names["model"], torch.nn.Linear)
    assert capsys.readouterr().out == ""
    (left,) = run(layer, capsys)
    assert left < 0.5
