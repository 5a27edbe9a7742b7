"""The compiled call paths of a wheel: which one is taken, and what happens where none fits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flashcliff.functional  # noqa: F401  (which chooses the call path)
from flashcliff import native
from flashcliff._native import compiler

is_shipped = pytest.mark.skipif(
    native.state().said != "compiled, from the wheel", reason="no wheel, or none for this PyTorch"
)

CALL = """
import sys, warnings
from pathlib import Path
import torch, flashcliff.native
flashcliff.native._SHIPPED = Path(sys.argv[1])
before = flashcliff.build_info()["calls"]
assert before == "not chosen: no operator on tensors of PyTorch was used yet", before
%s
from flashcliff import functional as F
x = torch.arange(8.0).reshape(8, 1, 1).requires_grad_()
F.reverse(x, (3, 0, 0)).sum().backward()
assert x.grad.flatten().tolist() == [1, 1, 1, 1, -1, -1, -1, -1]
print(flashcliff.native.is_active(), flashcliff.build_info()["calls"])
"""


def call(shipped, cache, more="", **environment):
    """A call in a separate process, with libraries from a folder."""
    kept = {**os.environ, "FLASHCLIFF_CACHE_DIR": str(cache), "FLASHCLIFF_NATIVE": "", **environment}
    return subprocess.run(
        [sys.executable, "-c", CALL % more, str(shipped)], env=kept, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "version, has_cxx11_abi, name",
    [
        ("2.6.0", True, "torch_2_6.so"),
        ("2.6.0+cu124", False, "torch_2_6_before_cxx11.so"),
        ("2.10.1+cpu", True, "torch_2_10.so"),
        ("2.10.1+rocm6.4", True, "torch_2_10.so"),
        ("3.0.0", True, "torch_3_0.so"),
    ],
)
def test_releases_have_a_library(monkeypatch, tmp_path, version, has_cxx11_abi, name):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(native, "_has_cxx11_abi", lambda: has_cxx11_abi)
    monkeypatch.setattr(native, "_SHIPPED", tmp_path)
    with pytest.raises(native._Missing, match=f"no compiled call path for PyTorch {re.escape(version)}"):
        native._shipped()
    (tmp_path / name).touch()
    assert native._shipped() == tmp_path / name


@pytest.mark.parametrize("version", ["2.10.0a0+b4e4ee81d3.nv25.12", "2.16.0.dev20261101", "2.10.0rc1", "?"])
def test_other_versions_have_none(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(native._Missing, match=f"PyTorch {re.escape(version)} is no release"):
        native._shipped()


@pytest.mark.long
def test_without_a_library_calls_go_through_python(tmp_path):
    done = call(tmp_path, tmp_path)
    said = f"False Python: flashcliff has no compiled call path for PyTorch {torch.__version__}; "
    assert done.stdout.startswith(said), done
    assert done.stderr == ""
    done = call(tmp_path, tmp_path, "import logging; logging.basicConfig(level=logging.INFO)")
    said = "INFO:flashcliff:calls of operators go through Python: flashcliff has no compiled call path"
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
    done = call(tmp_path, tmp_path, FLASHCLIFF_NATIVE="0")
    assert done.stdout == "False Python: FLASHCLIFF_NATIVE=0\n" and done.stderr == ""
    done = call(tmp_path, tmp_path, FLASHCLIFF_NATIVE="1")
    assert "ImportError: FLASHCLIFF_NATIVE=1, and the compiled call path cannot be used: " in done.stderr


def shipped_here():
    version = torch.__version__.split(".")
    return compiler.shipped(int(version[0]), int(version[1]), native._has_cxx11_abi())


@pytest.mark.share(2)
@pytest.mark.parametrize("contents", ["no library", "another library"])
def test_a_library_that_cannot_be_used_is_said_once(tmp_path, contents):
    path = tmp_path / shipped_here()
    core = Path(sys.modules["flashcliff._core"].__file__)
    if contents == "no library":
        path.write_text(contents)
    else:
        shutil.copy(core, path)
    done = call(tmp_path, tmp_path / "cache")
    assert done.stdout.startswith("False Python: "), done
    assert done.stderr.count("RuntimeWarning: ") == 1 and str(path) in done.stderr, done.stderr
    assert "calls go through Python" in done.stderr


@is_shipped
def test_a_library_of_another_flashcliff_is_refused(tmp_path):
    """The table of kernels says its version."""
    more = """
import ctypes
table = (ctypes.c_uint64 * 16)()
flashcliff._core.native_table = lambda: ctypes.addressof(table)
"""
    done = call(compiler.SOURCES, tmp_path, more)
    assert done.stdout.startswith("False Python: "), done
    assert "built for another version of flashcliff" in done.stderr


@pytest.mark.long
@is_shipped
def test_a_library_of_another_pytorch_is_refused(tmp_path):
    """It may be loaded, and finds a tensor elsewhere."""
    more = """
data_ptr = torch.Tensor.data_ptr
def wrong(tensor):
    torch.Tensor.data_ptr = data_ptr
    return 1
torch.Tensor.data_ptr = wrong
"""
    done = call(compiler.SOURCES, tmp_path, more)
    assert done.stdout.startswith("False Python: "), done
    assert f"is for another PyTorch than {torch.__version__}" in done.stderr


@is_shipped
def test_a_library_of_the_wheel_serves(tmp_path):
    done = call(compiler.SOURCES, tmp_path, FLASHCLIFF_NATIVE="1", PATH="")
    assert (done.stdout, done.stderr) == ("True compiled, from the wheel\n", "")
    assert not list(tmp_path.iterdir())


def test_headers_say_their_version(tmp_path):
    with pytest.raises(RuntimeError, match="expected the headers of PyTorch, got "):
        compiler.version_of(tmp_path)
    include = Path(torch.__file__).parent / "include"
    if include.is_dir():
        assert list(compiler.version_of(include)) == [int(n) for n in torch.__version__.split(".")[:2]]
