"""The Python programs of the package's README run unchanged."""

import itertools
import json
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


def test_accelerate(capsys):
    exec(compile(BLOCKS[0], str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == "nothing to replace\n"


def test_a_network_of_your_own(capsys):
    (left,) = run(BLOCKS[1], capsys)
    assert left < 0.5


def test_points_of_gatr_move_along(capsys):
    (off,) = run(BLOCKS[2], capsys)
    assert off < 1e-9


def test_a_model_of_cgenn(capsys):
    (off,) = run(BLOCKS[3], capsys)
    assert off < 1e-3


def test_weights_there_and_back(capsys):
    assert run(BLOCKS[4], capsys) == []


@pytest.mark.filterwarnings("ignore::flashcliff.CaptureWarning")
def test_a_captured_step(capsys):
    first, last = run(BLOCKS[5], capsys)
    assert last < first


def test_the_way_of_calls(capsys):
    exec(compile(BLOCKS[6], str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.strip() == flashcliff.native.state().said


def test_a_profile(capsys):
    exec(compile(BLOCKS[7], str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "backward of linear_weight, linear_bias, weight " in printed and "in 4 calls of flashcliff" in printed


def test_differences_of_two_gpus_are_those_of_the_data():
    data = Path(__file__).parents[3] / "benches" / "results" / "gpu-h200-x2-ddp.json"
    if not data.exists():
        pytest.skip("a source distribution holds the package alone")
    measured, page = json.loads(data.read_text(encoding="utf-8")), README.read_text(encoding="utf-8")
    for way, what in itertools.product(("ddp", "fsdp"), ("losses_off", "parameters_off")):
        for dtype in ("float64", "float32"):
            assert f"{measured[way][dtype][what]:.1e}".replace("e-0", "e-").replace(".0e", "e") in page


def test_all_blocks_are_run():
    assert len(BLOCKS) == 8


def test_the_programs_of_the_repositorys_readme(capsys):
    page = Path(__file__).parents[3] / "README.md"
    if not page.exists():
        pytest.skip("a source distribution holds the package alone")
    accelerate, layer = blocks(page)
    assert layer == BLOCKS[1]
    names = {"model": torch.nn.Linear(2, 2)}
    exec(compile(accelerate, str(page), "exec"), names)
    assert isinstance(names["model"], torch.nn.Linear)
    assert capsys.readouterr().out == ""
    (left,) = run(layer, capsys)
    assert left < 0.5
