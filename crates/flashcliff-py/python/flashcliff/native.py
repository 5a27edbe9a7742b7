"""The compiled call path: calls of operators without Python between a function's arguments and the
kernels.

Small tensors feel what a call costs on the host. This path makes a call, with its gradient, about as
cheap as one of PyTorch's own, and puts kernels without Python below ``torch.ops.flashcliff``, which graphs of
``torch.compile`` call. Results, gradients and errors are the same as on the path in Python, which
takes the calls that this one leaves: tensor subclasses, tracing, transforms, and every call that
ends in an error.

Nothing has to be done for it. A wheel holds the path for each release of PyTorch from 2.6 on, and the first use of the operators takes the
one for the PyTorch that is there. Where there is none (another system, a PyTorch that is newer than the wheel or no release), calls go
through Python, which is slower and the same in all else. :func:`state` says which it is, and why.

For these, ``python -m flashcliff.native``, or :func:`build`, compiles the path against the headers of the installed
PyTorch, which takes a minute and needs a compiler of C++20 (``$CXX``, or else ``c++``, ``g++`` or
``clang++``) and the headers of Python. The result is kept in the folder ``native`` of ``$FLASHCLIFF_CACHE_DIR``, or of
``flashcliff`` in the cache folder of the system (``$XDG_CACHE_HOME``, ``~/.cache``), by the versions of
everything that went into it, beside its size and hash. A process that finds it there uses it, if it is whole; nothing is ever compiled
unasked. A damaged file is said once and left alone, and the next build replaces it.
``FLASHCLIFF_NATIVE=0`` leaves all of it alone, ``FLASHCLIFF_NATIVE=1`` makes it an error if calls would go through Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from . import _cache, _core
from ._native import compiler

__all__ = ["State", "build", "is_active", "state"]

_NAME = "_flashcliff_native"
_VARIABLE = "FLASHCLIFF_NATIVE"
_HOW = "build it with `python -m flashcliff.native`"
_SHIPPED = compiler.SOURCES
"""The folder of the libraries of a wheel."""
_LOG = logging.getLogger("flashcliff")


class State(NamedTuple):
    """Which way calls of operators go in this process."""

    compiled: bool
    """Whether they take the compiled call path."""
    said: str
    """The path in words, with the reason if it is Python's."""
    file: Path | None = None
    """The library of the compiled call path."""


_NOT_YET = State(False, "not chosen: no operator on tensors of PyTorch was used yet")
_state = _NOT_YET


def state() -> State:
    """Which way calls of operators go in this process, and why. The first use of :mod:`flashcliff.functional` chooses."""
    return _state


def is_active() -> bool:
    """Whether this process uses the compiled call path."""
    from ._ops import native

    return native.loaded is not None


def build() -> Path:
    """Compiles the call path for the installed PyTorch, unless that was done before, and makes this
    process use it. Returns the file.

    A file that is damaged, or that cannot be loaded, is built anew.

    Raises:
        RuntimeError: there is no compiler, or it failed; the message has its output.
        OSError: the file cannot be written.
        ImportError: a file that was just built cannot be loaded, as from a disk that forbids it.
    """
    path = _built()
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
    _use(module, path, "compiled here")
    return path


def start() -> None:
    """Uses the compiled call path if there is one and the environment does not forbid it."""
    choice = os.environ.get(_VARIABLE, "")
    if choice not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE}: expected 0, 1 or nothing, got `{choice}`")
    if choice == "0":
        _set(State(False, f"Python: {_VARIABLE}=0"))
        return
    missing, faults = [], []
    for origin, find in (("compiled, from the wheel", _shipped), ("compiled here", _kept)):
        try:
            path = find()
        except _Missing as none:
            missing.append(str(none))
            continue
        except Exception as fault:
            faults.append(str(fault))
            continue
        try:
            _use(_load(path), path, origin)
            break
        except Exception as fault:
            faults.append(f"{path}: {fault}")
    why = "; ".join(faults + missing)
    if is_active():
        _warn(*faults)
    elif choice == "1":
        raise ImportError(
            f"{_VARIABLE}=1, and the compiled call path cannot be used: {why}; {_HOW}"
        )
    else:
        _set(State(False, f"Python: {why}"))
        _warn(*(f"calls go through Python: {fault}; {_HOW}" for fault in faults[:1]))
        if not faults:
            _LOG.info("calls of operators go through Python: %s", why)


class _Missing(Exception):
    """There is no library, which is not a fault."""


def _shipped() -> Path:
    """The library of this package for the PyTorch that is there."""
    import torch

    version = str(torch.__version__)
    # Pre-releases, and builds from other commits, may have any layout.
    release = re.fullmatch(r"(\d+)\.(\d+)\.\d+(\+[a-z0-9.]+)?", version)
    if release is None:
        raise _Missing(f"PyTorch {version} is no release")
    path = _SHIPPED / compiler.shipped(int(release[1]), int(release[2]), _has_cxx11_abi())
    if not path.is_file():
        raise _Missing(f"flashcliff has no compiled call path for PyTorch {version}")
    return path


def _has_cxx11_abi() -> bool:
    import torch

    return bool(torch._C._GLIBCXX_USE_CXX11_ABI)


def _kept() -> Path:
    """The library that :func:`build` has made for the PyTorch that is there."""
    path = _built()
    if not os.path.lexists(path):
        raise _Missing(f"there is no {path}")
    if not _is_whole(path):
        raise ImportError(
            f"{path} is not the file that was built: it is damaged, or cannot be read"
        )
    return path


def _is_whole(path: Path) -> bool:
    """Whether a file is the one that was built for what its folder is named by."""
    return _cache.is_sealed(path, path.parent.name)


def _warn(*texts: str) -> None:
    for text in texts:
        message = f"the compiled call path of flashcliff cannot be used as it is: {text}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _set(chosen: State) -> None:
    global _state
    _state = chosen


def _use(module: ModuleType, path: Path, origin: str) -> None:
    from ._ops import native

    native.use(module)
    _set(State(True, origin, path))


def _built() -> Path:
    """The file of :func:`build` for this Python and PyTorch."""
    import torch

    sources = sorted(file for file in compiler.SOURCES.iterdir() if file.suffix in (".cpp", ".hpp"))
    parts = (
        *(file.read_bytes() for file in sources),
        repr((compiler.FLAGS, _has_cxx11_abi())).encode(),
        f"{torch.__version__} {torch.version.git_version}".encode(),
        sys.version.encode(),
    )
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return _cache.folder("native") / f"{_core.__version__}-{digest}" / f"{_NAME}{suffix}"


def _compile(path: Path) -> None:
    import torch

    include = Path(torch.__file__).parent / "include"
    compiler.compile_call_path(include, path, _has_cxx11_abi())


def _load(path: Path) -> ModuleType:
    # The module links PyTorch's libraries, which this process has once PyTorch is imported.
    import torch

    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    probe = torch.empty(3, 5)
    if module.addresses((probe, None)) != (probe.data_ptr(), 0):
        raise ImportError(f"this library is for another PyTorch than {torch.__version__}")
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
