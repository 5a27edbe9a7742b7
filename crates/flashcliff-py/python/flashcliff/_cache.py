"""The folders in which flashcliff keeps what it made once."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path:
    """A folder by name, by the rule of all of flashcliff's cache folders. It may not exist yet.

    Raises:
        RuntimeError: no variable of the environment names a place.
    """
    own = os.environ.get("FLASHCLIFF_CACHE_DIR")
    if own:
        return Path(own) / name
    for variable, below in (("XDG_CACHE_HOME", "."), ("LOCALAPPDATA", "."), ("HOME", ".cache")):
        value = os.environ.get(variable)
        # The specification of these variables says that relative paths are to be ignored.
        if value and Path(value).is_absolute():
            return Path(value) / below / "flashcliff" / name
    raise RuntimeError(
        "there is no cache folder: set FLASHCLIFF_CACHE_DIR, XDG_CACHE_HOME, HOME or LOCALAPPDATA"
    )
