"""Other libraries' names, arguments, shapes and state dicts."""

from . import cgenn, flash_clifford

__all__ = ["cgenn", "flash_clifford"]
