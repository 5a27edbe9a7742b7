"""``python -m flashcliff`` trains a network, and says so if it does not."""

from __future__ import annotations

import sys

import pytest
import torch

from flashcliff import __main__ as program
from flashcliff.nn import models


def test_the_network_learns(capsys):
    assert program.main() == 0
    printed = capsys.readouterr().out
    errors = [float(line.split()[-1]) for line in printed.splitlines() if line.startswith("step")]
    assert len(errors) == 7 and errors[-1] < errors[0] / 50


def test_what_does_not_learn_is_a_failure(monkeypatch, capsys):
    class Stuck(torch.nn.Module):
        def __init__(self, **_):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, vectors):
            return vectors[:, 0, 0] * self.weight

    monkeypatch.setattr(models, "Volumes", Stuck)
    monkeypatch.setattr(program, "STEPS", 6)
    assert program.main() == 1
    assert "computes wrongly" in capsys.readouterr().err


def test_without_torch_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert program.main() == 2
    assert "pip install torch" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _state_of_random_numbers():
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
