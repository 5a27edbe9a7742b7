"""Profiles (``region``) of what a region of code spends in flashcliff: records (``events``), the clocks and where they are put (``clock``,
``cuda``, ``hooks``, ``compiled``, ``kernels``), models of costs (``costs``, ``rates``), and reports (``rows``, ``timeline``,
``text``, ``trace``)."""

from .. import _torch as _torch
from .rates import Rates
from .region import Profile, profile
from .rows import Row

__all__ = ["Profile", "Rates", "Row", "profile"]
