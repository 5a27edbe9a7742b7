"""Where the build of the wheel looks for the compiler of CUDA."""

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
    path = folder / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
    path.chmod(0o755)
    return path


def test_the_first_compiler_wins(build, tmp_path):
    names = ("own", "other", "home", "path", "system", "target/cuda-toolkit/nvidia/cu13")
    own, other, home, path, system, target = (nvcc(tmp_path / name) for name in names)
    variables = {
        "FLASHCLIFF_NVCC": str(own),
        "NVCC": str(other),
        "CUDA_HOME": str(home.parents[1]),
        "PATH": str(path.parent),
    }

    def find():
        return build.find_nvcc(variables, tmp_path / "system", [tmp_path / "target"])

    for variable, expected in zip(list(variables), (own, other, home, path)):
        assert find() == expected
        del variables[variable]
    assert find() == system
    system.unlink()
    assert find() == target
    target.unlink()
    assert find() is None


def test_a_variable_is_not_passed_over(build, tmp_path):
    system = nvcc(tmp_path / "system")
    for variable in ("FLASHCLIFF_NVCC", "NVCC", "CUDA_HOME", "CUDA_PATH"):
        assert build.find_nvcc({variable: str(tmp_path / "no")}, system.parents[1], []) is None
    assert build.find_nvcc({"NVCC": ""}, system.parents[1], []) == system


@pytest.mark.parametrize(
    ("choice", "version", "features"),
    [
        ("", "13.0", ["--features", "cuda"]),
        ("", "12.8", ["--features", "cuda"]),
        ("", "12.4", []),
        ("0", "13.0", []),
        ("1", "12.4", ["--features", "cuda"]),
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
