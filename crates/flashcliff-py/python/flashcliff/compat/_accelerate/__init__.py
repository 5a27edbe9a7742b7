"""Replaces the modules of other libraries within a model by modules of this package.

``recognise`` tells what a module is from its structure, which ``structure`` reads; ``layers``, ``blocks``, ``networks``,
``slim``, ``cgenn`` and ``flash_clifford`` know how to make the counterparts of each form. ``outside`` and ``code`` find what
somebody changed in a module; ``proof`` compares it with its counterpart by runs, of which ``tables`` takes roundings out;
``adopt`` puts its parameters into the counterpart, ``calls`` makes that take its calls; ``walk`` goes through a model.
"""

from .walk import Acceleration, accelerate

__all__ = ["Acceleration", "accelerate"]
