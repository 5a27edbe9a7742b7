"""The oldest PyTorch that is needed, and what an older one meets."""

import re
from pathlib import Path

import pytest
from processes_common import printed

from flashcliff import _torch

PROGRAM = """
import importlib, torch
torch.__version__ = "2.5.1+cu124"
import flashcliff
for place in ("functional", "nn", "rotors", "optim", "compat", "capture", "profile", "accelerate"):
    ways = [lambda: getattr(flashcliff, place)]
    if place in flashcliff._MODULES:
        ways.append(lambda: importlib.import_module(f"flashcliff.{place}"))
    for way in ways:
        try:
            way()
        except ImportError as error:
            print(error)
        else:
            print(f"{place} did not ask")
"""


def test_an_older_pytorch_is_named():
    """Where PyTorch is needed, and not before."""
    wanted = f"flashcliff needs torch >= {_torch.REQUIRED}, found 2.5.1+cu124"
    assert printed(PROGRAM).splitlines() == [wanted] * 13


@pytest.mark.parametrize("version", ["2.6.0", "2.6.0+cpu", "2.11.0a0+git123", "3.0.0", "unknown"])
def test_versions_that_serve(version):
    _torch._check(version)


@pytest.mark.parametrize("version", ["2.5.1", "2.4.0+cu121", "1.13.1", "0.4"])
def test_versions_that_do_not(version):
    with pytest.raises(ImportError, match=f"found {re.escape(version)}$"):
        _torch._check(version)


def test_metadata_says_the_same():
    project = Path(__file__).parents[1] / "pyproject.toml"
    found = re.findall(r'"torch>=([^"]*)"', project.read_text())
    assert found and set(found) == {_torch.REQUIRED}


def test_jax_is_asked_for_where_it_is_needed():
    """Custom operators take arrays of JAX, and do not import it."""
    program = """
import sys
sys.modules["jax"] = None
import flashcliff.operators
try:
    flashcliff.jax
except flashcliff.MissingPackageError as error:
    print(error)
"""
    assert printed(program) == "flashcliff.jax needs JAX, which is not installed: pip install jax\n"


def test_arrays_need_no_pytorch():
    assert not printed("import sys; sys.modules['torch'] = None; import flashcliff; flashcliff.arrays")
