"""The oldest PyTorch that is needed, and what an older one meets."""

import re
from pathlib import Path

import pytest
import torch
from processes_common import printed

from flashcliff import _torch
from flashcliff._ops import releases

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


def test_releases_are_told_apart():
    assert _torch.is_before("2.10", "2.9.1+cpu") and _torch.is_before("3.0", "2.16.0.dev20261101")
    assert not _torch.is_before("2.10", "2.10.0a0+git123") and not _torch.is_before("2.10", "2.11.0")
    assert not _torch.is_before("2.10", "unknown") and not _torch.is_before(_torch.REQUIRED)


@pytest.mark.parametrize(
    ("shape", "pads", "wanted"),
    [
        ((2, 0, 4), (0, 0, 0, 0, 1, 2), (5, 0, 4)),
        ((0, 3, 4), (0, 0, 1, 0), (0, 4, 4)),
        ((2, 3, 0), (3, 2), (2, 3, 5)),
        ((2, 3, 4), (0, 0, 0, 0, 1, 2), (5, 3, 4)),
    ],
    ids=str,
)
def test_padding_for_older_releases(shape, pads, wanted, monkeypatch):
    """Shapes, zeros and gradients, of tensors without elements too."""
    monkeypatch.setattr(releases, "_PADS_EMPTY", False)
    x = torch.ones(shape, requires_grad=True)
    found = releases.padded(x, pads)
    assert found.shape == wanted and found.sum() == x.numel()
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert grad.shape == x.shape and (grad == 1).all()


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
