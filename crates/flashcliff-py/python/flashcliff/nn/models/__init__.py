"""CGENN's invariant models of point sets. Input: points ``[batch, points, dim]``."""

from .hulls import Hulls
from .regression import Regression
from .volumes import Volumes

__all__ = ["Hulls", "Regression", "Volumes"]
