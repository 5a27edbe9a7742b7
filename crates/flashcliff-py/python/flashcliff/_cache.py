"""The folders in which flashcliff keeps what it made once, and files there that are written whole or not at all.

What is read from there is checked first: a disk may have been full, a copy cut short, and anybody may have written to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_PIECE = 1 << 20
"""How many bytes of a file are read at once."""
_LONGEST = 1 << 10
"""The bytes of a seal, at most."""


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


def replace(path: Path, make: Callable[[Path], object], key: str) -> None:
    """Makes a file beside the old one and gives it the name. Readers see the old file or the new one, even after a power failure.

    Args:
        path: the file. What else has its name, such as a folder, is moved aside.
        make: writes the new file.
        key: what the file is made for, by which :func:`is_sealed` tells it from any other.

    Raises:
        OSError: the file cannot be written. The old one is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as beside:
        made = Path(beside) / path.name
        make(made)
        _sync(made)
        seal = _seal_of(made)
        seal.write_text(_digest(made, key))
        _sync(seal)
        # Two processes that finish at once must not leave the file of one with the seal of the other.
        with _locked(path.parent):
            for new, old in ((made, path), (seal, _seal_of(path))):
                _set_aside(old)
                os.replace(new, old)
    if os.name == "posix":
        _sync(path.parent)


def is_sealed(path: Path, key: str) -> bool:
    """Whether a file is the one that :func:`replace` made for a key, byte for byte."""
    if _matches(path, key):
        return True
    # Another process may have replaced the file, and not yet its seal.
    try:
        with _locked(path.parent):
            return _matches(path, key)
    except OSError:
        return False


def _seal_of(path: Path) -> Path:
    """The file with size, hash and key of another."""
    return path.with_name(path.name + ".sha256")


def _matches(path: Path, key: str) -> bool:
    seal = _seal_of(path)
    try:
        if not all(stat.S_ISREG(file.stat().st_mode) for file in (path, seal)):
            return False
        with seal.open("rb") as file:
            expected = file.read(_LONGEST)
        # The hash of a file of another size is not worth its time.
        is_long = expected.startswith(b"%d " % path.stat().st_size)
        return is_long and _digest(path, key).encode() == expected
    except OSError:
        return False


def _digest(path: Path, key: str) -> str:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return f"{size} {digest.hexdigest()} {key}\n"


def _set_aside(path: Path) -> None:
    """Moves a folder away that has the name of a file. It may be somebody's work."""
    if path.is_dir() and not path.is_symlink():
        aside = tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".broken", dir=path.parent)
        os.replace(path, Path(aside) / path.name)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        # Some file systems cannot do it for folders.
        if not path.is_dir():
            raise
    finally:
        os.close(file)


@contextlib.contextmanager
def _locked(parent: Path) -> Iterator[None]:
    """Keeps other processes away that would replace files of a folder, where the system can do that."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    lock = os.open(parent, os.O_RDONLY)
    try:
        # Without locks, as on some network drives, a reader may take a good pair for a bad one, not the reverse.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
