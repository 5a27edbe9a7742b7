"""The version of PyTorch that this package needs. Packages that use PyTorch import this first, so that an older one is named in
place of what it lacks."""

from __future__ import annotations

import re

import torch

__all__ = ["REQUIRED", "is_before"]

REQUIRED = "2.6"
"""The oldest PyTorch. `pyproject.toml` says the same."""


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; none of one that begins otherwise."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return () if found is None else tuple(map(int, found.groups()))


def is_before(release: str, version: str = str(torch.__version__)) -> bool:
    """Whether a version of PyTorch, by default the installed one, is older than a release. A version of an unknown form is not."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < _numbers(release)


def _check(version: str) -> None:
    """Raises an ImportError for a version that is too old. Versions of an unknown form pass."""
    if is_before(REQUIRED, version):
        raise ImportError(f"flashcliff needs torch >= {REQUIRED}, found {version}")


_check(str(torch.__version__))
