"""Compiles the call path against the headers of a PyTorch.

Two programs use it: :mod:`flashcliff.native` on the machine of a user, and ``cargo xtask dist``, which runs this file as a program. It
imports nothing of the package.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-DNDEBUG",
    # Else the lock of Python is taken by what pybind11 knows of one version of Python.
    "-DPYBIND11_SIMPLE_GIL_MANAGEMENT",
)
_FILES = ("call.cpp", "bridge.cpp")
_COMPILERS = ("c++", "g++", "clang++")
_LIBRARIES = ("torch_python", "torch_cpu", "c10")


def shipped(major: int, minor: int, cxx11_abi: bool) -> str:
    """The name of the library of a wheel for a version of PyTorch, beside this file."""
    return f"torch_{major}_{minor}{'' if cxx11_abi else '_before_cxx11'}.so"


def program() -> list[str]:
    """The compiler: ``$CXX``, or else the first that is there.

    Raises:
        RuntimeError: there is none.
    """
    if sys.platform == "win32":
        raise RuntimeError("the compiled call path is not available on Windows")
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    for name in _COMPILERS:
        if shutil.which(name):
            return [name]
    raise RuntimeError(f"there is no C++ compiler: expected CXX, or one of {', '.join(_COMPILERS)}")


def compile_call_path(include: Path, out: Path, cxx11_abi: bool = True) -> None:
    """Writes the library of the call path.

    Args:
        include: the folder ``torch/include`` of the PyTorch that it is for.
        out: the file.
        cxx11_abi: whether that PyTorch has strings and lists as in C++11.

    Raises:
        RuntimeError: there is no compiler, or it failed; the message has its output.
    """
    compiler = program()
    folders = (
        include,
        include / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_paths()["include"]),
    )
    with tempfile.TemporaryDirectory() as stand_ins:
        command = [
            *compiler,
            *FLAGS,
            f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}",
            # The library is the same wherever it was compiled.
            f"-ffile-prefix-map={SOURCES}=flashcliff",
            f"-ffile-prefix-map={include}=torch",
            *(f"-isystem{folder}" for folder in folders),
            *(str(SOURCES / file) for file in _FILES),
            "-o",
            str(out),
            *_libraries(compiler, Path(stand_ins)),
        ]
        _run(command)


def _libraries(compiler: list[str], folder: Path) -> list[str]:
    """Makes the library name PyTorch's libraries, which the process that loads it has, by empty libraries of the same names."""
    if sys.platform == "darwin":
        return ["-undefined", "dynamic_lookup", "-Wl,-dead_strip", "-Wl,-x"]
    empty = folder / "empty.cpp"
    empty.touch()
    for name in _LIBRARIES:
        file = f"lib{name}.so"
        shared = ["-shared", "-nostdlib", f"-Wl,-soname,{file}", "-o", str(folder / file)]
        _run([*compiler, *shared, str(empty)])
    named = [f"-l{name}" for name in _LIBRARIES]
    return [f"-L{folder}", "-Wl,--no-as-needed", *named, "-Wl,--as-needed,--gc-sections", "-s"]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise RuntimeError(f"the C++ compiler {command[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        raise RuntimeError(
            f"the C++ compiler failed, with the status {done.returncode}: {shlex.join(command)}\n{done.stdout[-8000:]}"
        )


def version_of(include: Path) -> tuple[int, int]:
    """The first two numbers of the version of PyTorch that headers are of.

    Raises:
        RuntimeError: they do not say it.
    """
    # Since 2.9 the first of these says it.
    places = ("torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h")
    text = "".join(file.read_text() for file in map(include.joinpath, places) if file.is_file())
    found = [re.search(rf"define TORCH_VERSION_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if not all(found):
        raise RuntimeError(f"expected the headers of PyTorch, got {include}")
    major, minor = (int(one[1]) for one in found if one)
    return major, minor


def main() -> int:
    """Writes the library that a wheel has for a PyTorch."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("include", type=Path, help="the folder torch/include of that PyTorch")
    parser.add_argument("folder", type=Path, help="the folder for the library")
    help = "PyTorch has strings from before C++11"
    parser.add_argument("--before-cxx11", action="store_true", help=help)
    given = parser.parse_args()
    include, is_new = given.include.resolve(), not given.before_cxx11
    path = given.folder / shipped(*version_of(include), is_new)
    compile_call_path(include, path, is_new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
