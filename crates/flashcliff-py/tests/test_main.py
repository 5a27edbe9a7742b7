"""``python -m flashcliff`` trains a network, and says so if it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


SCRIPT = "#!{python}\nimport sys\nfrom flashcliff.__main__ import script\nsys.exit(script())\n"
"""What pip writes for the command of the package."""


def ran(folder, *arguments, path):
    """The command, as pip installs it into a folder."""
    file = folder / "flashcliff"
    file.write_text(SCRIPT.format(python=sys.executable))
    file.chmod(0o755)
    package = str(Path(program.__file__).parents[1])
    environment = {**os.environ, "PATH": os.pathsep.join(map(str, path)), "PYTHONPATH": package}
    return subprocess.run([file, *arguments], capture_output=True, text=True, env=environment)


@pytest.mark.skipif(os.name == "nt", reason="scripts are programs on Windows")
def test_the_command_passes_on_what_is_for_the_program_of_rust(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    found = ran(ours, "info", path=[ours])
    assert found.returncode == 0 and "\nversion: " in found.stdout, found.stderr
    # A script, such as itself, is not the program of Rust.
    found = ran(ours, "train", "hulls", path=[ours, tmp_path / "none"])
    assert found.returncode == 2 and "cargo install flashcliff-cli" in found.stderr
    assert "got `train hulls`" in found.stderr
    # A program that is there to print its arguments stands for it.
    shutil.copy(shutil.which("echo"), theirs / "flashcliff")
    found = ran(ours, "train", "hulls", path=[ours, theirs])
    assert (found.returncode, found.stdout) == (0, "train hulls\n")


@pytest.fixture(autouse=True)
def _state_of_random_numbers():
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
