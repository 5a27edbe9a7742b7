"""The Python of the package's README runs as it stands there."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)


def run(block, capsys):
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    return [float(word) for word in capsys.readouterr().out.split()]


@pytest.fixture(autouse=True)
def _single():
    assert torch.get_default_dtype() == torch.float32


def test_learned_weights(capsys):
    loss, mean = run(BLOCKS[0], capsys)
    assert loss < 1e-6 and abs(mean - 1) < 1e-4


def test_a_model_of_cgenn(capsys):
    (off,) = run(BLOCKS[1], capsys)
    assert off < 1e-3


def test_weights_there_and_back(capsys):
    assert run(BLOCKS[2], capsys) == []


def test_all_blocks_are_run():
    assert len(BLOCKS) == 3
