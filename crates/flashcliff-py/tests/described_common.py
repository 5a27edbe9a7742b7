"""Helpers for the tests of layers as one function."""

from flashcliff.nn.transformer import described
from flashcliff.nn.transformer.described import choice


def count_functions(monkeypatch):
    """A list that grows with each function that stands for calls of layers: its class, and how many parts it has."""
    counts, attempt = [], choice._attempt

    def counted(owner, parts, start, *more):
        found = attempt(owner, parts, start, *more)
        if found is not None:
            counts.append((type(owner).__name__, found[0] - start))
        return found

    monkeypatch.setattr(choice, "_attempt", counted)
    return counts


def by_layers(function):
    """The result of a function in which layers are called."""
    with described.by_layers():
        return function()
