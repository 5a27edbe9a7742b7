"""Helpers for the tests of blocks as one function."""

from flashcliff.nn.transformer import block as blocks
from flashcliff.nn.transformer import whole


def count_whole(monkeypatch):
    """A list that grows with each call of a block: whether it was one function."""
    counts = []

    def attempt(*arguments):
        found = whole.attempt(*arguments)
        counts.append(found is not None)
        return found

    monkeypatch.setattr(blocks, "attempt", attempt)
    return counts


def by_layers(monkeypatch, function):
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "attempt", lambda *_: None)
        return function()
