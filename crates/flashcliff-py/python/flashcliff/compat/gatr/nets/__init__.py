"""GATr's networks."""

from .axial import AxialGATr
from .gatr import GATr

__all__ = ["AxialGATr", "GATr"]
