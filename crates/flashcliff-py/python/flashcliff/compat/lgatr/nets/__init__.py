"""L-GATr's networks."""

from .conditional import ConditionalLGATr
from .conditional_slim import ConditionalLGATrSlim
from .lgatr import LGATr
from .slim import LGATrSlim

__all__ = ["ConditionalLGATr", "ConditionalLGATrSlim", "LGATr", "LGATrSlim"]
