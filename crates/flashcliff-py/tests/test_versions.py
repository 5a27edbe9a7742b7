"""The oldest PyTorch that is needed, and what an older one meets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashcliff import _torch

PLACES = ["functional", "nn", "rotors", "optim", "compat", "capture", "profile", "predict"]
PLACES += ["calibrate", "accelerate"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("direct", [False, True])
def test_an_older_pytorch_is_named(place, direct):
    """Where PyTorch is needed, and not before."""
    if direct and place in ("capture", "profile", "predict", "calibrate", "accelerate"):
        pytest.skip("a function")
    program = "import flashcliff, importlib, torch; torch.__version__ = '2.7.1+cu126'\n"
    program += f"importlib.import_module('flashcliff.{place}')" if direct else f"flashcliff.{place}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert last == f"ImportError: flashcliff needs torch >= {_torch.REQUIRED}, found 2.7.1+cu126"


@pytest.mark.parametrize("version", ["2.8.0", "2.8.0+cpu", "2.11.0a0+git123", "3.0.0", "unknown"])
def test_versions_that_serve(version):
    _torch._check(version)


@pytest.mark.parametrize("version", ["2.7.1", "2.4.0+cu121", "1.13.1", "0.4"])
def test_versions_that_do_not(version):
    with pytest.raises(ImportError, match=f"found {re.escape(version)}$"):
        _torch._check(version)


def test_metadata_says_the_same():
    project = Path(__file__).parents[1] / "pyproject.toml"
    found = re.findall(r'"torch>=([^"]*)"', project.read_text())
    assert found and set(found) == {_torch.REQUIRED}


def test_arrays_need_no_pytorch():
    program = "import sys; sys.modules['torch'] = None; import flashcliff; flashcliff.arrays"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
