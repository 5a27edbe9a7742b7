"""CGENN's models: invariants of points ``[batch, points, dim]``, and the motion of bodies on graphs."""

from .hulls import Hulls
from .nbody import NBody
from .regression import Regression
from .volumes import Volumes

__all__ = ["Hulls", "NBody", "Regression", "Volumes"]
