"""Calls the extension with the tensors of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .. import _core
from . import backends, doors, remedies, room, strided
from .op import CACHED
from .tensor_types import NAMES

_NOTHING = (0, 0)


def forward(
    operator: _core.Operator, tensors: Sequence[Tensor], keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The output, and with ``keep`` the tensor that backward reads besides, if there is one."""
    try:
        return _forward(operator, tensors, keep)
    except torch.OutOfMemoryError as error:
        raise room.explained(error, operator, tensors, None) from None
    except (TypeError, ValueError) as error:
        raise remedies.of_tensor(error, operator, tensors) from None


def _forward(operator, tensors, keep):
    if backends.takes_triton(tensors[0]):
        return _triton(operator, tensors).forward(operator, tensors, keep)
    tensors, views, place = _views(operator, tensors)
    if place is not None and place[0] != torch.cuda.current_device():
        with torch.cuda.device(place[0]):
            return _forward(operator, tensors, keep)
    first = tensors[0]
    shape, saved_len, workspace_len = operator.plan(views, False, place)
    output = torch.empty_like(first) if shape == views[0][1] else first.new_empty(shape)
    saved = None
    saved_at = spare = 0
    # A tensor that is kept has no other place.
    if saved_len and (keep or operator.kept is not None):
        saved = first.new_empty(saved_len, dtype=saved_dtype(first.dtype))
        saved_at = saved.data_ptr()
    elif saved_len and place is None:
        # On the CPU sums need memory even if nobody reads them; it comes after the workspace.
        workspace_len = -(-workspace_len // 8) * 8
        spare = 8 * saved_len
    space = _NOTHING
    if workspace_len + spare:
        workspace = first.new_empty(workspace_len + spare, dtype=torch.uint8)
        space = (workspace.data_ptr(), workspace_len)
        if spare:
            saved_at = space[0] + workspace_len
    operator.forward(views, output.data_ptr(), saved_at, space, place)
    return output, saved if keep else None


def backward(
    operator: _core.Operator,
    tensors: Sequence[Tensor],
    output: Tensor | None,
    saved: Tensor | None,
    grad: Tensor,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of the inputs that are wanted. ``output`` may be ``None`` if the pass does
    not read it."""
    if not any(wanted):
        return [None] * len(wanted)
    try:
        return _backward(operator, tensors, output, saved, grad, wanted)
    except torch.OutOfMemoryError as error:
        raise room.explained(error, operator, tensors, wanted) from None
    except RuntimeError:
        refuse_layouts(operator.name, ("grad", "output", "saved"), (grad, output, saved))
        raise


def _backward(operator, tensors, output, saved, grad, wanted):
    if backends.takes_triton(tensors[0]):
        return _triton(operator, (*tensors, grad)).backward(operator, tensors, grad, wanted)
    tensors, views, place = _views(operator, tensors)
    if place is not None and place[0] != torch.cuda.current_device():
        with torch.cuda.device(place[0]):
            return _backward(operator, tensors, output, saved, grad, wanted)
    first = tensors[0]
    shape, saved_len, workspace_len = operator.plan(
        views, True, place, wanted if place is None else None
    )
    grad = _checked(operator, "the gradient of the output", grad, first, shape)
    # A tensor that is not read must still be memory of the right size.
    output = grad if output is None else _checked(operator, "the output", output, first, shape)
    saved = _checked_saved(operator, saved, first, saved_len) if saved_len else None
    workspace = first.new_empty(workspace_len, dtype=torch.uint8) if workspace_len else None
    grads = [torch.empty_like(tensor) if want else None for tensor, want in zip(tensors, wanted)]
    operator.backward(
        views,
        output.data_ptr(),
        0 if saved is None else saved.data_ptr(),
        grad.data_ptr(),
        [None if grad is None else grad.data_ptr() for grad in grads],
        _NOTHING if workspace is None else (workspace.data_ptr(), workspace_len),
        place,
    )
    return grads


def results(operator: _core.Operator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """All outputs of an operator with any number of them."""
    try:
        return _results(operator, tensors)
    except torch.OutOfMemoryError as error:
        raise room.explained(error, operator, tensors, None) from None
    except (TypeError, ValueError) as error:
        raise remedies.of_tensor(error, operator, tensors) from None


def _results(operator, tensors):
    if backends.takes_triton(tensors[0]):
        return _triton(operator, tensors).results(operator, tensors)
    found = strided.results(operator, tensors)
    if found is not None:
        return found
    tensors, views, place = _views(operator, tensors)
    if place is not None and place[0] != torch.cuda.current_device():
        with torch.cuda.device(place[0]):
            return _results(operator, tensors)
    # A result has the type of the tensors of its kind: with a batch axis, or without.
    of_inputs, of_outputs = _kinds(operator)
    like = dict(zip(of_inputs, tensors))
    first = like[True]
    made, workspace_len = operator.plan_run(views, place)
    outputs = [like[kind].new_empty(shape) for kind, shape in zip(of_outputs, made)]
    workspace = first.new_empty(workspace_len, dtype=torch.uint8) if workspace_len else None
    space = _NOTHING if workspace is None else (workspace.data_ptr(), workspace_len)
    operator.run(views, [output.data_ptr() for output in outputs], space, place)
    return outputs


def _triton(operator, tensors):
    """The module that calls Triton kernels, for tensors on one device."""
    from .._triton import launch

    refuse_layouts(operator.name, [name for name, _ in operator.inputs], tensors)
    refuse_devices(operator, tensors)
    return launch


@lru_cache(maxsize=4 * CACHED)
def _kinds(operator: _core.Operator) -> tuple[list[bool], list[bool]]:
    """Whether each input has a batch axis, and each output."""
    return (
        ["batch" in axes for _, axes in operator.inputs],
        ["batch" in axes for _, axes in operator.outputs],
    )


def _views(operator, tensors):
    """Contiguous tensors, their descriptions for the extension, and their device."""
    try:
        return _strided_views(operator, tensors)
    except RuntimeError:
        # PyTorch raises various errors for tensors without their own memory.
        refuse_layouts(operator.name, [name for name, _ in operator.inputs], tensors)
        raise


def _strided_views(operator, tensors):
    first = tensors[0]
    on_cpu, device = first.is_cpu, first.get_device()
    contiguous = tensors
    views = []
    kind = name = None
    for index, tensor in enumerate(tensors):
        dtype = tensor.dtype
        if dtype is not kind:
            kind, name = dtype, NAMES.get(dtype)
        if name is None or not (
            tensor.is_cpu if on_cpu else tensor.is_cuda and tensor.get_device() == device
        ):
            _refuse(operator, tensors)
        address = doors.place(tensor)
        if not address or tensor.is_neg():
            if not doors.has_memory(tensor):
                doors.refuse(operator.name, tensors, [name for name, _ in operator.inputs])
            tensor = tensor.contiguous().resolve_neg()
            address = tensor.data_ptr()
            contiguous = [*contiguous[:index], tensor, *contiguous[index + 1 :]]
        views.append((address, tensor.shape, name))
    if on_cpu:
        return contiguous, views, None
    stream = torch._C._cuda_getCurrentRawStream(device)
    return contiguous, views, (device, stream, takes_tf32())


def takes_tf32() -> bool:
    """Whether matrix products of float32 on CUDA may round to TF32."""
    try:
        # This attribute also tells what the older functions set. They raise once this attribute was
        # set.
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    except AttributeError:
        return torch.get_float32_matmul_precision() != "highest"


def launch(x: Tensor, function: Callable[[tuple[int, int]], None]) -> None:
    """Calls a function with the device of a tensor and the address of PyTorch's stream there."""
    device = x.get_device()
    if device != torch._C._cuda_getDevice():
        # The extension makes the tensor's device current, which must not outlast the call.
        with torch.cuda.device(device):
            function((device, torch._C._cuda_getCurrentRawStream(device)))
        return
    function((device, torch._C._cuda_getCurrentRawStream(device)))


def refuse_layouts(operator: str, names: Iterable[str], tensors: Iterable[Tensor | None]) -> None:
    """Raises if a tensor is not a plain array of numbers: sparse, nested, batched by a
    transform."""
    if torch.compiler.is_compiling():
        return
    for name, tensor in zip(names, tensors):
        if tensor is None:
            continue
        refuse_sparse_and_nested(operator, name, tensor)
        if is_batched(tensor):
            raise _core.UnsupportedError(
                f"{operator}: expected tensors with memory, and `{name}` is a batch of tensors; "
                "use torch.func.vmap, or a loop"
            )


def refuse_sparse_and_nested(operator: str, name: str, tensor: Tensor) -> None:
    """Raises if a tensor has another layout than that of an array."""
    if tensor.is_nested:
        raise _core.UnsupportedError(
            f"{operator}: expected dense tensors, got `{name}` nested; pad it, or call the "
            "operator for each part"
        )
    if tensor.layout is not torch.strided:
        raise _core.UnsupportedError(
            f"{operator}: expected dense tensors, got `{name}` with the layout "
            f"{tensor.layout}; call its `to_dense()` first"
        )


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch of tensors, as in ``torch.autograd.grad`` with
    ``is_grads_batched``."""
    functorch = torch._C._functorch
    return functorch.is_legacy_batchedtensor(tensor) or functorch.is_batchedtensor(tensor)


def _refuse(operator, tensors):
    """Raises an error that names the wrong layout, device or element type."""
    names = [name for name, _ in operator.inputs]
    refuse_layouts(operator.name, names, tensors)
    refuse_devices(operator, tensors)
    device = tensors[0].device
    if device.type not in ("cpu", "cuda"):
        raise _core.UnsupportedError(
            f"{operator.name}: expected tensors on cpu, cuda or xpu, got {device}"
        )
    wrong = ((name, t.dtype) for name, t in zip(names, tensors) if t.dtype not in NAMES)
    name, dtype = next(wrong)
    raise TypeError(
        f"{operator.name}: tensor `{name}` must be float32 or float64, or on CUDA bfloat16 or "
        f"float16, got {dtype}"
    )


def refuse_devices(operator: _core.Operator, tensors: Sequence[Tensor]) -> None:
    """Raises if the tensors are not all on one device."""
    device = tensors[0].device
    if any(tensor.device != device for tensor in tensors):
        names = (*(name for name, _ in operator.inputs), "grad")
        listed = ", ".join(f"{name} on {tensor.device}" for name, tensor in zip(names, tensors))
        raise RuntimeError(
            f"{operator.name}: expected all tensors on the same device, got {listed}; move them with "
            "`.to(device)`"
        )


def _checked(operator, what, tensor, like, shape):
    if tensor.shape != shape or tensor.dtype is not like.dtype or tensor.device != like.device:
        raise ValueError(
            f"{operator.name}: {what} must be {tuple(shape)}, {like.dtype} on {like.device}, got "
            f"{tuple(tensor.shape)}, {tensor.dtype} on {tensor.device}"
        )
    return _resolved(operator, what, tensor)


def _resolved(operator, what, tensor):
    """The tensor in the order of its memory."""
    if doors.place(tensor) and not tensor.is_neg():
        return tensor
    if not doors.has_memory(tensor):
        doors.refuse(operator.name, (tensor,), (what,))
    return tensor.contiguous().resolve_neg()


def _checked_saved(operator, saved, like, length):
    dtype = saved_dtype(like.dtype)
    if (
        saved is None
        or saved.numel() < length
        or saved.dtype != dtype
        or saved.device != like.device
    ):
        got = "None" if saved is None else f"{saved.numel()}, {saved.dtype} on {saved.device}"
        raise ValueError(
            f"{operator.name}: expected at least {length} saved numbers, {dtype} on {like.device}, "
            f"got {got}"
        )
    return _resolved(operator, "the saved sums", saved)


def saved_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of saved sums, which is the type of the arithmetic."""
    return torch.float64 if dtype == torch.float64 else torch.float32
