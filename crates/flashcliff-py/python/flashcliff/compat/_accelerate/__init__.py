"""Replaces the modules of other libraries within a model by modules of this package.

``adopt`` puts the parameters of one module into another; ``cgenn``, ``flash_clifford``, ``gatr`` and ``lgatr`` know how
to make the counterpart of each library's modules; ``walk`` goes through a model.
"""

from .walk import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate"]
