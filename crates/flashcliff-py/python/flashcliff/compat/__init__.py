"""Other libraries' names, arguments, shapes and state dicts."""

from .. import _torch as _torch
from . import cgenn, flash_clifford, gatr, lgatr
from ._accelerate import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate", "cgenn", "flash_clifford", "gatr", "lgatr"]
