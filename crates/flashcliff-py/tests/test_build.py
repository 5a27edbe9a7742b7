"""Where the build of the wheel looks for nvcc."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("maturin")


@pytest.fixture
def build(monkeypatch):
    path = Path(__file__).parents[1] / "build_backend" / "flashcliff_build.py"
    spec = importlib.util.spec_from_file_location("flashcliff_build", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "flashcliff_build", module)
    spec.loader.exec_module(module)
    return module


def nvcc(folder, version="13.0"):
    """A toolkit: a compiler that tells its version, and the library beside it."""
    path = folder / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
    path.chmod(0o755)
    (folder / "lib64").mkdir()
    (folder / "lib64" / "libcudart_static.a").touch()
    return path


def test_the_compiler_of_the_build_is_found(build, tmp_path, monkeypatch):
    compiler = nvcc(tmp_path)
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.setenv("FLASHCLIFF_NVCC", str(compiler))
    assert build.find_nvcc() == str(compiler)


def test_the_reason_is_told_if_there_is_no_compiler(build, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FLASHCLIFF_NVCC", str(tmp_path / "no"))
    assert build.find_nvcc() is None
    assert f"FLASHCLIFF_NVCC is `{tmp_path / 'no'}`" in capfd.readouterr().err


def test_a_search_that_fails_is_an_error(build, monkeypatch):
    monkeypatch.setenv("CARGO", "false")
    with pytest.raises(SystemExit, match="find-nvcc. failed; FLASHCLIFF_CUDA=0 or 1"):
        build.find_nvcc()


@pytest.mark.parametrize(
    ("choice", "version", "features"),
    [
        ("", "13.0", ["--features", "package,cuda"]),
        ("", "12.8", ["--features", "package,cuda"]),
        ("", "12.4", []),
        ("0", "13.0", []),
        ("1", "12.4", ["--features", "package,cuda"]),
    ],
)
def test_features(build, tmp_path, monkeypatch, choice, version, features):
    monkeypatch.setenv("FLASHCLIFF_CUDA", choice)
    monkeypatch.setenv("FLASHCLIFF_NVCC", str(nvcc(tmp_path, version)))
    monkeypatch.delenv("CUDARC_CUDA_VERSION", raising=False)
    monkeypatch.delenv("MATURIN_PEP517_ARGS", raising=False)
    settings = build._with_features({"maturin.build-args": "--locked"})
    assert settings["maturin.build-args"] == ["--locked", *features]


def test_a_wrong_choice(build, monkeypatch):
    monkeypatch.setenv("FLASHCLIFF_CUDA", "yes")
    with pytest.raises(SystemExit, match="expected 0, 1 or nothing, got `yes`"):
        build._with_features(None)
