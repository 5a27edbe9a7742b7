"""Replaces the modules of other libraries within a model by modules of this package.

``cgenn``, ``flash_clifford`` and ``transformers`` know how to make the counterpart of each library's modules;
``unchanged`` and ``code`` find what somebody changed in a module, ``proof`` compares it with its counterpart by runs;
``adopt`` puts its parameters into the counterpart; ``walk`` goes through a model.
"""

from .walk import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate"]
