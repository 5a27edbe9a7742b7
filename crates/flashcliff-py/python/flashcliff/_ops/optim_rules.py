"""What tells our optimisers apart: their names, what the state of a parameter has, and whose states look alike."""

from __future__ import annotations

from typing import NamedTuple

AVERAGE = "average"
"""The name of the average of a parameter in its state."""


class Rule(NamedTuple):
    """An optimiser."""

    name: str
    """How messages call it."""
    means: tuple[str, ...]
    """The names of the means in a state, each of the parameter's type, shape and strides."""
    counts: bool
    """Whether a state has a step count."""
    numbers: tuple[str, ...]
    """The options that are numbers of at least 0, besides the learning rate."""
    foreign: dict[str, str]
    """Names in states of other optimisers which have all of these names besides, and what they are."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of what a state has."""
        return ("step", *self.means) if self.counts else self.means

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a group."""
        return ("lr", "betas", *self.numbers, "maximize", "max_norm", "average_decay")


ADAMW = Rule(
    "AdamW",
    ("exp_avg", "exp_avg_sq"),
    True,
    ("eps", "weight_decay"),
    {"max_exp_avg_sq": "the maxima of AMSGrad", "mu_product": "NAdam"},
)
LION = Rule(
    "Lion",
    ("exp_avg",),
    False,
    ("weight_decay",),
    {"exp_avg_sq": "means of squares, as of AdamW", "exp_inf": "Adamax"},
)
