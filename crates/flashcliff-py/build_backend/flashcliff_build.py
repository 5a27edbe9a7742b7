"""The build of the wheel: maturin, with CUDA kernels where there is a compiler for them.

``FLASHCLIFF_CUDA=1`` asks for CUDA kernels, ``0`` for none. Unset, they are built if nvcc is found
by the rules of the crate ``flashcliff-build-support`` and is new enough; a wheel with them runs on
machines without a GPU too.
"""

from __future__ import annotations

import os
import re
import shutil
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

_REPOSITORY = Path(__file__).resolve().parents[3]
_OLDEST_NVCC = (12, 8)

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
        arguments += ["--features", "cuda"]
        # The version of the declarations of CUDA's driver; the configuration of the repository's
        # cargo says the same.
        os.environ.setdefault("CUDARC_CUDA_VERSION", "13000")
    return {**(settings or {}), "maturin.build-args": arguments}


def _wants_cuda() -> bool:
    choice = os.environ.get("FLASHCLIFF_CUDA", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"FLASHCLIFF_CUDA: expected 0, 1 or nothing, got `{choice}`")
    if choice:
        return choice == "1"
    nvcc = find_nvcc(os.environ, Path("/usr/local/cuda"), _target_folders())
    if nvcc is None:
        print("flashcliff: no nvcc found, so without CUDA kernels")
        return False
    version = _version(nvcc)
    if version is None or version < _OLDEST_NVCC:
        print(f"flashcliff: {nvcc} is not of CUDA 12.8 or later, so without CUDA kernels")
        return False
    print(f"flashcliff: with CUDA kernels, by {nvcc}; FLASHCLIFF_CUDA=0 builds without them")
    return True


def find_nvcc(
    variables: Mapping[str, str], system: Path, target_folders: list[Path]
) -> Path | None:
    """The compiler that the build will take: the first of the variables, the path, the system's,
    and that of ``cargo xtask cuda-toolkit``. A variable that names none is never passed over."""
    search = variables.get("PATH", "")
    for name in ("FLASHCLIFF_NVCC", "NVCC"):
        if value := variables.get(name):
            found = shutil.which(value, path=search) if os.sep not in value else value
            return Path(found) if found and Path(found).is_file() else None
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := variables.get(name):
            nvcc = Path(value) / "bin" / "nvcc"
            return nvcc if nvcc.is_file() else None
    if found := shutil.which("nvcc", path=search):
        return Path(found)
    toolkits = [system, *(folder / "cuda-toolkit/nvidia/cu13" for folder in target_folders)]
    compilers = (toolkit / "bin" / "nvcc" for toolkit in toolkits)
    return next((nvcc for nvcc in compilers if nvcc.is_file()), None)


def _target_folders() -> list[Path]:
    chosen = os.environ.get("CARGO_TARGET_DIR")
    return [*([Path(chosen)] if chosen else []), _REPOSITORY / "target"]


def _version(nvcc: Path) -> tuple[int, int] | None:
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"release (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None
