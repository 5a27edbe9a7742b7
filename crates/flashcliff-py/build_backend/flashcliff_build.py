"""The build of the wheel: maturin, with CUDA kernels if there is an nvcc.

``FLASHCLIFF_CUDA=1`` asks for CUDA kernels, ``0`` for none. Unset, they are built if the program
``find-nvcc`` of the crate ``flashcliff-build-support`` finds an nvcc that can be used; a wheel with
them runs on machines without a GPU too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # noqa: F401, hooks that need nothing of ours
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

_PACKAGE = Path(__file__).resolve().parents[1]
_SEARCH = "--package flashcliff-build-support --bin find-nvcc"
# The exit status of the search if there is no nvcc that can be used.
_NO_NVCC = 2

Settings = Mapping[str, Any] | None


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return maturin.build_wheel(wheel_directory, _with_features(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return maturin.build_editable(
        wheel_directory, _with_features(config_settings), metadata_directory
    )


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    return maturin.prepare_metadata_for_build_wheel(
        metadata_directory, _with_features(config_settings)
    )


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def _with_features(settings: Settings) -> dict[str, Any]:
    arguments = list(maturin.get_maturin_pep517_args(settings))
    if _wants_cuda():
        # Features of a command line replace the features of pyproject.toml.
        arguments += ["--features", "package,cuda"]
        # This is the version of the declarations of CUDA's driver. The cargo configuration of the
        # repository has the same.
        os.environ.setdefault("CUDARC_CUDA_VERSION", "13000")
    return {**(settings or {}), "maturin.build-args": arguments}


def _wants_cuda() -> bool:
    choice = os.environ.get("FLASHCLIFF_CUDA", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"FLASHCLIFF_CUDA: expected 0, 1 or nothing, got `{choice}`")
    if choice:
        return choice == "1"
    nvcc = find_nvcc()
    if nvcc is None:
        print("flashcliff: without CUDA kernels")
        return False
    print(f"flashcliff: with CUDA kernels, by {nvcc}; FLASHCLIFF_CUDA=0 builds without them")
    return True


def find_nvcc() -> str | None:
    """The compiler that the build will use. ``None`` if there is none, for the reason that the
    search prints."""
    cargo = os.environ.get("CARGO", "cargo")
    search = [cargo, "run", "--quiet", *_SEARCH.split()]
    found = subprocess.run(search, cwd=_PACKAGE, stdout=subprocess.PIPE, text=True)
    if found.returncode == _NO_NVCC:
        return None
    if found.returncode != 0:
        raise SystemExit(f"`{' '.join(search)}` failed; FLASHCLIFF_CUDA=0 or 1 does without it")
    return found.stdout.strip()
