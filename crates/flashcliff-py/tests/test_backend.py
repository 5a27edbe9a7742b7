"""The choice of a backend, where Triton need not be installed."""

import sys

import pytest
import torch
from processes_common import ran

import flashcliff
from flashcliff import functional as F


def test_names_of_backends_are_checked():
    with pytest.raises(ValueError, match="backend: expected one of native, triton, got 'cuda'"):
        with flashcliff.backend("cuda"):
            pass


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(flashcliff.MissingPackageError, match="pip install triton"):
        with flashcliff.backend("triton"):
            pass


def test_the_variable_of_the_environment_is_checked():
    done = ran("import flashcliff.functional", FLASHCLIFF_BACKEND="rocm")
    assert "FLASHCLIFF_BACKEND: expected one of native, triton, got 'rocm'" in done.stderr


def test_the_native_backend_changes_nothing():
    x = torch.randn(8, 3, 4)
    before = F.norm(x, (3, 0, 0))
    with flashcliff.backend("native"):
        assert torch.equal(F.norm(x, (3, 0, 0)), before)
