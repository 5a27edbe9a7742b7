"""Other libraries' names, arguments, shapes and state dicts, for code whose imports change.

- :mod:`.gatr`: GATr 1.4.
- :mod:`.lgatr`: lgatr 2.0; ``lgatr.v1`` is lgatr 1.4.
- :mod:`.cgenn`: CGENN.
- :mod:`.flash_clifford`: flash-clifford.

:func:`flashcliff.accelerate` uses the same classes within a finished model, without any change of code.
"""

from .. import _torch as _torch
from . import cgenn, flash_clifford, gatr, lgatr
from ._accelerate import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate", "cgenn", "flash_clifford", "gatr", "lgatr"]
