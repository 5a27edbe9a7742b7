"""The calls of layers, for the calls of modules that no function stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .call import Given, Maybe

__all__ = ["Calls", "called"]


class Calls:
    """A network that is computed while it is described: each layer within a module is called in its place.

    It has those methods of :class:`.description.Description` by which modules join layers, so ``describe`` says for both what a
    module computes. Values are multivectors and scalars; more than one pair where layers lie side by side.

    Args:
        owner: the module.
        given: the arguments of its call.
    """

    without_gradients = again = False

    def __init__(self, owner: Any, given: Given) -> None:
        self.owner, self.given = owner, given

    def block(self) -> None:
        """Calls have no blocks."""

    @property
    def here(self) -> Any:
        """The first input."""
        return self.given.here

    def result(self, x: Any) -> Maybe:
        """The result of a module, as a function that stands for it gives it."""
        found: Maybe = x
        return found

    def call(self, module: Any, x: Any, *others: Any, sees: Sequence[str] = ()) -> Any:
        """The result of the call of a module: with multivectors of all values, then scalars, then what else it sees."""
        tensors = [t for parts in zip(x, *others) for t in parts]
        options: Mapping[str, Any] = {}
        for name in sees:
            own = getattr(self.given, name)
            if isinstance(own, Mapping):
                options = own
            else:
                tensors += own if isinstance(own, tuple) else (own,)
        return module(*tensors, **options)

    def calls(self, modules: Iterable[Any], x: Any) -> Any:
        """The result of modules one after another."""
        for module in modules:
            x = self.call(module, x)
        return x

    def linears(self, layers: Sequence[Any], x: Any, keeps_scalars: bool) -> list[Tensor | None]:
        """The results of layers that share their input; or their multivectors, and the scalars of the input, if these are kept."""
        found = [self.call(layer, x) for layer in layers]
        return (
            [*(mv for mv, _ in found), x[1]] if keeps_scalars else [t for own in found for t in own]
        )

    def context(self) -> Maybe:
        """The items that cross-attention attends to."""
        return self.given.context

    def sum(self, x: Maybe, y: Maybe) -> Maybe:
        """The sum of two values, of which either may be without scalars."""
        (mv, s), (more, more_s) = x, y
        if s is None or more_s is None:
            s = more_s if s is None else s
        else:
            s = s + more_s
        assert mv is not None and more is not None
        return mv + more, s

    def products(self, _: Any, x: Sequence[Any]) -> Maybe:
        """Products, and joins, of factors, and the scalars that lie after these."""
        *factors, s = x
        return self.owner.products(factors, self.given.reference), s

    def head_gains(self, x: Maybe, heads: int, gains: Tensor) -> Maybe:
        """Channels times the factors of their heads, of which the head is the slowest index."""
        mv, s = (
            None if t is None else t * gains.repeat_interleave(t.shape[-1] // heads) for t in x
        )
        return mv, s

    def optional(self, module: nn.Module, name: str, _: Sequence[int]) -> Tensor | None:
        """A parameter of a module, if it has one."""
        found: Tensor | None = getattr(module, name)
        return found

    def reads(self, *_: Any) -> None:
        """Notes nothing: a call reads attributes as they are."""


def called(owner: Any, given: Given) -> Maybe:
    """The result of a module by the calls of its layers."""
    network = owner.calls_of_layers(owner, given)
    return network.result(owner.describe(network, network.here))
