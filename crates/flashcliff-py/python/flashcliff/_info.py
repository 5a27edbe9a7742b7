"""What runs here, and what is slow here: the answer of :func:`flashcliff.info`."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path

from . import _cache, _core, build_info, native

_PACKAGES = "torch", "jax", "numpy", "onnx", "onnxruntime", "ase"
"""The packages that parts of this one use, if they are there."""
_WHEEL = {
    (1, 0, 0),
    (0, 1, 0),
    (0, 2, 0),
    (2, 0, 0),
    (3, 0, 0),
    (3, 0, 1),
    (1, 3, 0),
    (4, 1, 0),
    (5, 0, 0),
}
"""The algebras with compiled kernels in a wheel."""
_NVRTC = "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"


@dataclass(frozen=True)
class Slow:
    """Something that makes calls slower than they could be here.

    Attributes:
        what: what is slow.
        why: the reason.
        remedy: what to do.
    """

    what: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.remedy}"


@dataclass(frozen=True)
class Info:
    """This installation, and the machine it runs on. ``str(info)`` is a page to read, or to send with a report of a fault.

    Attributes:
        version: the version of flashcliff.
        cuda: whether the build has CUDA kernels.
        simd: the SIMD units in use.
        python: the version of Python.
        platform: the system and the processor.
        packages: the versions of packages that are used if they are there.
        threads: the threads of a call on the CPU.
        kernels: the algebras with compiled kernels; others are interpreted on CPUs, and compiled when they are used on GPUs.
        gpus: the GPUs that PyTorch sees, with their compute capabilities.
        nvrtc: the compiler of kernels at run time; empty if there is none.
        calls: the way that calls of operators on tensors of PyTorch go, with the reason if it is Python's; empty without PyTorch.
        cache: the folder of what is made once; empty if there is none.
        slow: what is slow here, with remedies.
    """

    version: str
    cuda: bool
    simd: str
    python: str
    platform: str
    packages: dict[str, str]
    threads: int
    kernels: tuple[str, ...]
    gpus: tuple[str, ...]
    nvrtc: str
    calls: str
    cache: str
    slow: tuple[Slow, ...]

    def __str__(self) -> str:
        named = {own.name: getattr(self, own.name) for own in fields(self) if own.name != "slow"}
        lines = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in named.items()]
        slow = [f"  {own}" for own in self.slow] or ["  nothing known"]
        return "\n".join(["flashcliff", *lines, "slow here:", *slow])


def info() -> Info:
    """Versions, kernels, SIMD units, GPUs, the call path and the cache folder of this installation, and what is slow here and why, with the
    remedy. ``print(flashcliff.info())`` shows it, and so does the command ``flashcliff info``.

    It imports PyTorch, if that is installed.

    >>> import flashcliff
    >>> found = flashcliff.info()
    >>> found.version == flashcliff.__version__
    True
    """
    gpus, calls = _of_torch()
    built = build_info()
    cache = _cache_folder()
    nvrtc = _nvrtc() if built["cuda"] else ""
    threads = _core.get_num_threads()
    signatures = _core.shipped()
    slow = [
        *_of_calls(calls),
        *_of_gpus(bool(built["cuda"]), gpus, nvrtc),
        *_of_cpu(str(built["simd"]), threads),
        *_of_kernels(set(signatures)),
        *_of_cache(cache),
    ]
    return Info(
        version=str(built["version"]),
        cuda=bool(built["cuda"]),
        simd=str(built["simd"]),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}, {_processors()} processors",
        packages={name: own for name in _PACKAGES if (own := _version(name))},
        threads=threads,
        kernels=tuple(f"Cl({p},{q},{r})" for p, q, r in signatures),
        gpus=gpus,
        nvrtc=nvrtc,
        calls="" if calls is None else calls.said,
        cache=cache,
        slow=tuple(slow),
    )


def main() -> int:
    """Prints :func:`info`. Returns the exit status."""
    print(info())
    return 0


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {own}" for name, own in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processors() -> int:
    """The processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _of_torch() -> tuple[tuple[str, ...], native.State | None]:
    """The GPUs that PyTorch sees, and the way of calls on its tensors; none without it."""
    try:
        import torch

        # Its first use chooses the way of calls.
        from . import functional  # noqa: F401
    except ImportError:
        return (), None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [
        f"{torch.cuda.get_device_name(at)} ({'.'.join(map(str, torch.cuda.get_device_capability(at)))})"
        for at in range(count)
    ]
    return tuple(named), native.state()


def _nvrtc() -> str:
    """The library that compiles kernels at run time, by the name under which the loader finds it."""
    for name in _NVRTC:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ""


def _cache_folder() -> str:
    try:
        return str(_cache.folder("native").parent)
    except RuntimeError:
        return ""


def _of_calls(calls: native.State | None) -> list[Slow]:
    if calls is None:
        why = "PyTorch is not installed, so there are arrays, and no gradients"
        return [Slow("networks", why, "run `pip install torch`")]
    if calls.compiled:
        return []
    if os.environ.get("FLASHCLIFF_NATIVE") == "0":
        remedy = "unset FLASHCLIFF_NATIVE"
    else:
        remedy = "run `python -m flashcliff.native`, which needs a C++ compiler and a minute"
    return [Slow("calls on small tensors", f"they go through {calls.said}", remedy)]


def _of_gpus(cuda: bool, gpus: tuple[str, ...], nvrtc: str) -> list[Slow]:
    if gpus and not cuda:
        why = "this build has no CUDA kernels, so operators on GPUs are refused"
        return [Slow("the GPU", why, "install nvcc and build the package again")]
    if cuda and gpus and not nvrtc:
        why = "NVRTC is not found, so kernels that the build does not have are refused"
        remedy = "run `pip install nvidia-cuda-nvrtc`, or put its folder into LD_LIBRARY_PATH"
        return [Slow("algebras without compiled kernels on GPUs", why, remedy)]
    return []


def _of_cpu(simd: str, threads: int) -> list[Slow]:
    found = []
    forced = os.environ.get("FLASHCLIFF_SIMD")
    if forced:
        found.append(
            Slow("kernels on the CPU", f"FLASHCLIFF_SIMD={forced} chooses the units", "unset it")
        )
    elif simd == "scalar":
        why = "there are kernels for AVX2, AVX-512 and NEON, and this processor has none of them"
        found.append(Slow("kernels on the CPU", why, "use another processor"))
    if threads < _processors():
        why = f"calls use {threads} of {_processors()} processors"
        remedy = f"call `flashcliff.set_num_threads({_processors()})`, unless other work needs them"
        found.append(Slow("large tensors on the CPU", why, remedy))
    return found


def _of_kernels(signatures: set[tuple[int, int, int]]) -> list[Slow]:
    missing = sorted(_WHEEL - signatures)
    if not missing:
        return []
    names = ", ".join(f"Cl({p},{q},{r})" for p, q, r in missing)
    why = "this build has no compiled kernels of them, so CPUs interpret their programs"
    return [Slow(names, why, "install a wheel, or build with the feature `all-algebras`")]


def _of_cache(cache: str) -> list[Slow]:
    folder = Path(cache) if cache else None
    while folder is not None and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder is not None and folder.is_dir() and os.access(folder, os.W_OK):
        return []
    why = "the cache folder cannot be written, so what is compiled once is compiled in each process"
    return [Slow("the first call", why, "set FLASHCLIFF_CACHE_DIR to a folder of your own")]
