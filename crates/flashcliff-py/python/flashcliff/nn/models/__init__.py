"""Models of CGENN, CSMPN and MVN: invariants of points ``[batch, points, dim]``, the motion of bodies and classes of jets on
graphs, and volumes on simplicial complexes."""

from .hulls import Hulls
from .jets import CGLayer, JetTagger
from .mvn import MVNBody
from .nbody import NBody
from .regression import Regression
from .simplices import SimplicialHulls
from .volumes import Volumes

__all__ = [
    "CGLayer",
    "Hulls",
    "JetTagger",
    "MVNBody",
    "NBody",
    "Regression",
    "SimplicialHulls",
    "Volumes",
]
