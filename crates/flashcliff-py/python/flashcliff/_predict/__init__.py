"""Predictions (``predict``) of the time and memory of a model's step: rates of the machine, kept in a file (``rates``); records of the calls of a
step, with fake tensors or for real (``record``, ``ours``, ``clock``, ``step``); from few samples to a batch, and to the largest batch
(``scale``); the report (``report``)."""

from .. import _torch as _torch
from .prediction import predict
from .rates import Rates, calibrate
from .report import Prediction

__all__ = ["Prediction", "Rates", "calibrate", "predict"]
