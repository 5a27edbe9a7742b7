"""The compiled call path: calls of operators without Python between a function's arguments and the
kernels.

Small tensors feel what a call costs on the host. This path makes a call, with its gradient, about as
cheap as one of PyTorch's own, and puts kernels without Python below ``torch.ops.flashcliff``, which graphs of
``torch.compile`` call. Results, gradients and errors are those of the path in Python, which
takes the calls that this one leaves: tensor subclasses, tracing, transforms, and every call that
ends in an error.

``python -m flashcliff.native``, or :func:`build`, compiles C++ against the headers of the installed
PyTorch, which takes a minute and needs a compiler of C++20 (``$CXX``, or else ``c++``, ``g++`` or
``clang++``) and the headers of Python. The result is kept in the folder ``native`` of ``$FLASHCLIFF_CACHE_DIR``, or of
``flashcliff`` in the cache folder of the system (``$XDG_CACHE_HOME``, ``~/.cache``), by the versions of
everything that went into it, beside its size and hash. A process that finds it there uses it, if it is whole; nothing is ever compiled
unasked. A damaged file is said once and left alone, and the next build replaces it.
``FLASHCLIFF_NATIVE=0`` leaves it alone, ``FLASHCLIFF_NATIVE=1`` makes it an error if it is not there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType

from . import _cache, _core

__all__ = ["build", "is_active"]

_NAME = "_flashcliff_native"
_SOURCE = Path(__file__).resolve().parent / "_native" / "call.cpp"
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG")
_COMPILERS = ("c++", "g++", "clang++")
_VARIABLE = "FLASHCLIFF_NATIVE"
_HOW = "build it with `python -m flashcliff.native`"


def build() -> Path:
    """Compiles the call path for the installed PyTorch, unless that was done before, and makes this
    process use it. Returns the file.

    A file that is damaged, or that cannot be loaded, is built anew.

    Raises:
        RuntimeError: there is no compiler, or it failed; the message has its output.
        OSError: the file cannot be written.
        ImportError: a file that was just built cannot be loaded, as from a disk that forbids it.
    """
    path = _path()
    if not _is_whole(path):
        _cache.replace(path, _compile, path.parent.name)
    if is_active():
        return path
    try:
        module = _load(path)
    except Exception:
        # It is what was built, but not for this system.
        _cache.replace(path, _compile, path.parent.name)
        module = _load(path)
    _use(module)
    return path


def _is_whole(path: Path) -> bool:
    """Whether a file is the one that was built for what its folder is named by."""
    return _cache.is_sealed(path, path.parent.name)


def is_active() -> bool:
    """Whether this process uses the compiled call path."""
    from ._ops import native

    return native.loaded is not None


def start() -> None:
    """Uses the compiled call path if it was built and the environment does not forbid it."""
    choice = os.environ.get(_VARIABLE, "")
    if choice not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE}: expected 0, 1 or nothing, got `{choice}`")
    if choice == "0":
        return
    insists = choice == "1"
    try:
        path = _path()
        if os.path.lexists(path):
            if not _is_whole(path):
                raise ImportError(
                    f"{path} is not the file that was built: it is damaged, or cannot be read"
                )
            _use(_load(path))
            return
    except Exception as error:
        if insists:
            raise ImportError(
                f"{_VARIABLE}=1, and the compiled call path cannot be used: {error}; {_HOW}"
            ) from error
        warnings.warn(
            f"the compiled call path of flashcliff cannot be used, calls go through Python: {error}; {_HOW}",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    if insists:
        raise ImportError(f"{_VARIABLE}=1, and there is no {path}; {_HOW}")


def _use(module: ModuleType) -> None:
    from ._ops import native

    native.use(module)


def _path() -> Path:
    """The file of the compiled call path for this Python and PyTorch."""
    import torch

    parts = (
        *(file.read_bytes() for file in sorted(_SOURCE.parent.glob("*.?pp"))),
        repr((_FLAGS, _definitions())).encode(),
        f"{torch.__version__} {torch.version.git_version}".encode(),
        sys.version.encode(),
    )
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return _cache.folder("native") / f"{_core.__version__}-{digest}" / f"{_NAME}{suffix}"


def _definitions() -> tuple[str, ...]:
    import torch

    return (f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",)


def _compiler() -> list[str]:
    if sys.platform == "win32":
        raise RuntimeError("the compiled call path is not available on Windows")
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    for name in _COMPILERS:
        if shutil.which(name):
            return [name]
    raise RuntimeError(f"there is no C++ compiler: expected CXX, or one of {', '.join(_COMPILERS)}")


def _compile(path: Path) -> None:
    import torch

    home = Path(torch.__file__).parent
    includes = (
        home / "include",
        home / "include" / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_paths()["include"]),
    )
    # The process that loads the file has these libraries.
    libraries = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    libraries += [f"-L{home / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    command = [
        *_compiler(),
        *_FLAGS,
        *_definitions(),
        *(f"-isystem{folder}" for folder in includes),
        str(_SOURCE),
        "-o",
        str(path),
        *libraries,
    ]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise RuntimeError(f"the C++ compiler {command[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        raise RuntimeError(
            f"the C++ compiler failed, with the status {done.returncode}: {shlex.join(command)}\n{done.stdout[-8000:]}"
        )


def _load(path: Path) -> ModuleType:
    # The libraries that the module links are those of this process.
    import torch  # noqa: F401

    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Builds the call path, or says why that fails. Returns the exit status."""
    try:
        print(build())
    except (ImportError, OSError, RuntimeError) as error:
        print(f"the compiled call path cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
