"""The operators as operators of PyTorch: ``torch.ops.flashcliff.<name>`` and ``<name>_backward``.

A schema is the tensors, the name of the algebra, then the options. Forward gives the output and,
where the operator saves sums or a tensor, these in one. Backward takes the gradient, the inputs (not if the operator
is linear), the saved sums, the output (where it may be read), and for each input whether its
gradient is wanted; it gives those that are.

The kernels here are Python. The compiled call path puts others above them, which leave to these what is not plain
(:mod:`.native`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._derived.table import OPS
from . import asked, batches, counted, derived, run, second, shapes, transforms
from .autocast import cast
from .op import Op, operator, present
from .releases import gradients_of


class Registered:
    """An operator with its overloads in the dispatcher."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.count = len(op.tensors)
        self._forward = torch.library.custom_op(
            f"flashcliff::{op.name}", self._run, mutates_args=(), schema=self._schema()
        )
        self._backward = torch.library.custom_op(
            f"flashcliff::{op.name}_backward",
            self._run_backward,
            mutates_args=(),
            schema=self._backward_schema(),
        )
        self._forward.register_fake(self._fake)
        self._backward.register_fake(self._fake_backward)
        self._forward.register_autograd(self._gradients, setup_context=self._keep)
        self._backward.register_autograd(self._second, setup_context=self._keep_second)
        self.forward = getattr(torch.ops.flashcliff, op.name).default
        self.backward = getattr(torch.ops.flashcliff, f"{op.name}_backward").default
        for device in ("cuda", "cpu"):
            self._register_autocast(device)
            _follow_tangents(self._forward, self.forward, self._followed, device)
            _follow_tangents(self._backward, self.backward, self._followed_backward, device)
        transforms.follow(self.forward, self._followed)
        transforms.follow(self.backward, self._followed_backward)

    def call(self, tensors: tuple[Any, ...], algebra: str, options: tuple[Any, ...]) -> Tensor:
        """The output, through the dispatcher."""
        result = self.forward(*tensors, algebra, *options)
        return result[0] if self.op.saves else result

    def gradients(
        self,
        grad: Tensor,
        kept: Sequence[Any],
        wanted: Sequence[bool],
        configuration: tuple[Any, ...],
    ) -> list[Tensor | None]:
        """The gradients that are wanted, through the dispatcher; ``kept`` is what the backward pass reads."""

        def call(grads: Sequence[Tensor]) -> list[Tensor | None]:
            found = iter(self.backward(*grads, *kept, list(wanted), *configuration))
            return [next(found) if want else None for want in wanted]

        return batches.over(call, [grad])

    # Schemas

    def _configuration(self) -> str:
        options = (f"{o.type} {o.name}={o.default!r}" for o in self.op.options)
        return ", ".join(("str algebra", *options))

    def _tensors(self) -> list[str]:
        return [
            f"Tensor{'?' if name.endswith('?') else ''} {name.rstrip('?')}"
            for name in self.op.tensors
        ]

    def _schema(self) -> str:
        outputs = "(Tensor, Tensor)" if self.op.saves else "Tensor"
        return f"({', '.join(self._tensors())}, {self._configuration()}) -> {outputs}"

    def _backward_schema(self) -> str:
        inputs = [] if self.op.linear else self._tensors()
        kept = ["Tensor? saved", "Tensor? output"] if self.op.saves else []
        arguments = ["Tensor grad", *inputs, *kept, "bool[] wanted", self._configuration()]
        return f"({', '.join(arguments)}) -> Tensor[]"

    # Kernels

    def _split(self, args):
        """The tensors that are given, and the operator."""
        tensors = args[: self.count]
        self._check_given(self.op.name, tensors)
        return present(tensors), self._operator(tensors, args[self.count :])

    def _check_given(self, name, tensors):
        """Checks that all required tensors are there, since the dispatcher lets ``None`` pass."""
        for what, tensor, optional in zip(self.op.names, tensors, self.op.optional):
            if tensor is None and not optional:
                raise TypeError(f"{name}: `{what}` must be a torch.Tensor, got NoneType")

    def _run(self, *args):
        tensors, core = self._split(args)
        output, saved = run.forward(core, tensors, self.op.saves)
        if not self.op.saves:
            return output
        return output, output.new_empty(
            0, dtype=run.saved_dtype(output.dtype)
        ) if saved is None else saved

    def _fake(self, *args):
        tensors, core = self._split(args)
        run.refuse_devices(core, tensors)
        output, saved = shapes.fake_forward(core, tensors)
        return (output, saved) if self.op.saves else output

    def _split_backward(self, args):
        """The tensors that are given, the operator, the gradients that are wanted, the saved
        sums and the output."""
        grad, *args = args
        name = f"{self.op.name}_backward"
        if grad is None:
            raise TypeError(f"{name}: `grad` must be a torch.Tensor, got NoneType")
        if self.op.linear:
            # A linear operator reads its inputs for their shape alone.
            tensors = [grad] * self.count
        else:
            tensors, args = args[: self.count], args[self.count :]
        saved = output = None
        if self.op.saves:
            saved, output, *args = args
        wanted, *configuration = args
        self._check_given(name, tensors)
        self._check_wanted(name, tensors, wanted)
        if output is None and self.op.reads_output(*self._complete(configuration)[1:]):
            raise ValueError(f"{name}: expected the output, got None")
        core = self._operator(tensors, configuration)
        wanted = [want for want, tensor in zip(wanted, tensors) if tensor is not None]
        return grad, present(tensors), core, wanted, saved, output

    def bound(
        self, args: tuple[Any, ...], backward: bool
    ) -> tuple[Sequence[Tensor], _core.Operator, tuple[bool, ...]]:
        """The tensors of a call of the dispatcher, its operator, and the gradients that it makes."""
        if not backward:
            return (*self._split(args), ())
        _, tensors, core, wanted, _, _ = self._split_backward(args)
        return tensors, core, tuple(wanted)

    def _check_wanted(self, name, tensors, wanted):
        """Checks that each input says whether its gradient is wanted, and is there if it is."""
        if len(wanted) != self.count:
            raise ValueError(
                f"{name}: expected {self.count} booleans in `wanted`, for "
                f"{', '.join(self.op.names)}, got {len(wanted)}"
            )
        for what, tensor, want in zip(self.op.names, tensors, wanted):
            if want and tensor is None:
                raise ValueError(
                    f"{name}: the gradient of `{what}` is wanted, and `{what}` is None"
                )

    def _run_backward(self, *args):
        grad, tensors, core, wanted, saved, output = self._split_backward(args)
        grads = run.backward(core, tensors, output, saved, grad, wanted)
        return [grad for grad in grads if grad is not None]

    def _fake_backward(self, *args):
        grad, tensors, core, wanted, _, _ = self._split_backward(args)
        run.refuse_devices(core, (*tensors, grad))
        return [tensor.new_empty(tensor.shape) for tensor, want in zip(tensors, wanted) if want]

    def _operator(self, tensors, configuration) -> _core.Operator:
        algebra, *options = self._complete(configuration)
        return operator(self.op, algebra, self.op.given(tensors), tuple(options))

    def _complete(self, configuration) -> tuple[Any, ...]:
        """The algebra and all options; PyTorch leaves out those at the end that have their
        default."""
        missing = self.op.options[len(configuration) - 1 :]
        options = (*configuration, *(option.default for option in missing))
        return tuple(tuple(o) if isinstance(o, list) else o for o in options)

    # Gradients

    def _keep(self, ctx, inputs, output):
        tensors = inputs[: self.count]
        ctx.configuration = self._complete(inputs[self.count :])
        ctx.arguments = len(inputs)
        kept = () if self.op.linear else tensors
        if self.op.saves:
            output, saved = output
            ctx.mark_non_differentiable(saved)
            # Else each backward pass would make zeros of the size of what is saved.
            ctx.set_materialize_grads(False)
            reads_output = self.op.reads_output(*ctx.configuration[1:])
            kept = (*kept, saved, output if reads_output else None)
        ctx.save_for_backward(*kept)

    def _gradients(self, ctx, grad, *_):
        if grad is None:
            return (None,) * ctx.arguments
        run.refuse_sparse_and_nested(self.op.name, "grad", grad)
        wanted = list(asked.of(ctx, ctx.needs_input_grad[: self.count]))
        found = self.gradients(grad, ctx.saved_tensors, wanted, ctx.configuration)
        return (*found, *(None for _ in range(ctx.arguments - self.count)))

    def _parts(self, inputs):
        """The gradient, the inputs, which gradients are wanted, and the configuration, of the
        arguments of a backward pass."""
        grad, *rest = inputs
        if self.op.linear:
            tensors = (grad,) * self.count
        else:
            tensors, rest = rest[: self.count], rest[self.count :]
        if self.op.saves:
            rest = rest[2:]
        wanted, *configuration = rest
        return grad, tensors, wanted, self._complete(configuration)

    def _keep_second(self, ctx, inputs, output):
        grad, tensors, ctx.wanted, ctx.configuration = self._parts(inputs)
        ctx.save_for_backward(grad, *tensors)

    def _second(self, ctx, grads):
        grad, *tensors = ctx.saved_tensors
        needs = asked.of(ctx, [need is True for need in ctx.needs_input_grad])
        needed = [needs[0]]
        # A linear operator has no gradient by its inputs.
        needed += [False] * self.count if self.op.linear else needs[1 : 1 + self.count]
        seeds = iter(grads)
        seeds = [next(seeds) if want else None for want in ctx.wanted]
        found = second.gradients(self.op, ctx.configuration, grad, tensors, seeds, needed)
        if self.op.linear:
            found = found[:1]
        # PyTorch leaves out options that have their defaults, and older versions want no gradient for these.
        return (*found, *(None for _ in range(len(needs) - len(found))))

    # Transforms and tangents

    def _followed(self, *args):
        tensors = args[: self.count]
        self._check_given(self.op.name, tensors)
        device = tensors[0].device.type
        if torch.is_autocast_enabled(device):
            # Transforms come before autocast.
            tensors = cast(self.op, tensors, device)
        algebra, *options = self._complete(args[self.count :])
        output = second.transformed(self.op, algebra, options, tensors)
        if not self.op.saves:
            return output
        # Derivatives of this output read no sums.
        return output, output.new_empty(0, dtype=run.saved_dtype(output.dtype))

    def _followed_backward(self, *args):
        grad, tensors, wanted, configuration = self._parts(args)
        self._check_given(f"{self.op.name}_backward", tensors)
        found = second.transformed_gradients(self.op, configuration, grad, tensors, wanted)
        return [grad for grad, want in zip(found, wanted) if want]

    # Autocast

    def _register_autocast(self, device: str) -> None:
        key = _key("Autocast", device)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def kernel(_, *args, **kwargs):
            with torch._C._ExcludeDispatchKeyGuard(keys):
                tensors = cast(self.op, args[: self.count], device)
                return self.forward(*tensors, *args[self.count :], **kwargs)

        transforms.LIBRARY.impl(self.op.name, kernel, key, with_keyset=True)


def _follow_tangents(
    definition: Any, overload: torch._ops.OpOverload, followed: Callable[..., Any], device: str
) -> None:
    """Makes a registered operator call another function if a tensor has a tangent, which PyTorch's
    kernel for gradients would lose."""
    key = _key("Autograd", device)
    inner = gradients_of(definition, overload, key)
    name = overload._schema.name.removeprefix("flashcliff::")

    def kernel(keyset, *args, **kwargs):
        if derived.has_tangents(args):
            return followed(*args, **kwargs)
        return inner(keyset, *args, **kwargs)

    transforms.LIBRARY.impl(name, kernel, key, with_keyset=True)


def _key(what: str, device: str) -> str:
    """The name of a key of the dispatcher."""
    return what + str(torch._C._dispatch_key_for_device(device))


REGISTERED: dict[Op, Registered] = {op: Registered(op) for op in OPS}
"""All operators, registered."""
NAMED: dict[str, Registered] = {op.name: registered for op, registered in REGISTERED.items()}
"""All operators by their names, for traces: PyTorch 2.9 cannot look up an operator that has a function of the compiled call path."""

transforms.follow(torch.ops.flashcliff.derived.default, derived.follow)

counted.when_imported(REGISTERED.values())
