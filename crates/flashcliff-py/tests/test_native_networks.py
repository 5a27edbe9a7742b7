"""Networks by the compiled call path: its node in the graph of autograd, and that it means the same as the function of Python."""

import gc
import re
import threading
import weakref

import pytest
import torch
import torch._dynamo.compiled_autograd
import torch._dynamo.testing
import torch.utils.checkpoint
from described_common import network
from nn_common import random

from flashcliff._ops import native as switch

compiled = pytest.mark.native
NODE = "FlashcliffNetworkBackward"


def inputs(rows=5):
    return random(16, 2, rows, 2).requires_grad_(), random(2, rows, 3, seed=1).requires_grad_()


def total(outputs):
    return sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in outputs)


def gradients(net, given):
    return torch.autograd.grad(total(net(*given)), [*given, *net.parameters()])


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def node_of(output):
    """The nodes next to an output, down to the first of a network."""
    node = output.grad_fn
    while node is not None and node.name() != NODE:
        node = node.next_functions[0][0]
    return node


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_same_bits(dtype, python):
    net = network().to(dtype)
    given = [t.detach().to(dtype).requires_grad_() for t in inputs()]
    assert node_of(net(*given)[0]) is not None
    want = python(lambda: [*net(*given), *gradients(net, given)])
    assert same([*net(*given), *gradients(net, given)], want)


@compiled
def test_what_goes_through_python():
    """Parameters that are no whole arrays in one place, and those that autocast has in another type, are for Python."""
    net = network()
    (x, s), parameters = inputs(), list(net.parameters())
    others = {
        "another type": torch.nn.Parameter(torch.zeros(4)),
        "strides": torch.zeros(4, 4, dtype=torch.float64).t(),
        "an address that plans do not take": torch.zeros(9, dtype=torch.float64)[1:],
        "a device": torch.zeros(4, dtype=torch.float64, device="meta"),
        "a number": 1.0,
        "nothing": None,
    }
    with torch.inference_mode():
        others["no count of its changes"] = torch.zeros(4, dtype=torch.float64)
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"place {len(parameters)}"):
            switch.loaded.Parameters([*parameters, other])
            pytest.fail(name)
    own = switch.loaded.Parameters(parameters)
    found = switch.loaded.network_wants([x, None, s.detach()], own)
    assert found == [True, False, False, *[True] * len(parameters)]
    assert switch.loaded.network_wants([x, 1.0], own) is None
    with pytest.raises(TypeError, match="Parameters"):
        switch.loaded.network_wants([x], parameters)
    narrow = network().float()
    for is_one in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            out = narrow(*(t.detach().float() for t in inputs()))[0]
        assert (node_of(out) is not None) == is_one
        first = next(narrow.parameters())
        first.data = first.data.bfloat16()


@compiled
def test_parameters_that_change():
    """Addresses are asked for again, and there are none for other tensors or shapes."""
    parameters = [torch.nn.Parameter(random(4, 4, seed=at)) for at in range(3)]
    own = switch.loaded.Parameters(parameters)
    assert own.places(parameters) == [p.data_ptr() for p in parameters]
    assert own.places(parameters[:-1]) is None
    assert own.places([*parameters[:-1], parameters[-1].detach()]) is None
    parameters[1].data = random(4, 4)
    assert own.places(parameters) == [p.data_ptr() for p in parameters]
    for data in (random(2, 8), random(4, 4).float(), random(4, 4).t(), random(17)[1:].view(4, 4)):
        parameters[1].data = data
        assert own.places(parameters) is None
    parameters[1].data = random(4, 4)
    parameters[1].untyped_storage().resize_(0)
    assert own.places(parameters) is None


@pytest.mark.parametrize("shift", [0, 1])
def test_any_address(path, shift):
    """Tensors may lie between the addresses that plans read."""

    def moved(tensor):
        room = torch.empty(tensor.numel() + shift, dtype=tensor.dtype)
        own = room[shift:].view(tensor.shape)
        return own.copy_(tensor.detach())

    net, given = network(), inputs()
    want = [*net(*given), *gradients(net, given)]
    for p in net.parameters():
        p.data = moved(p)
    given = [moved(t).requires_grad_() for t in given]
    assert all((t.data_ptr() % 16 != 0) == (shift == 1) for t in (*given, *net.parameters()))
    assert same([*net(*given), *gradients(net, given)], want)


@compiled
def test_some_gradients():
    """Only what has a gradient gets one."""
    net, given = network(), inputs()
    want = dict(zip([*given, *net.parameters()], gradients(net, given)))
    for at, p in enumerate(net.parameters()):
        p.requires_grad_(at % 3 == 0)
    for rows in ((True, True), (True, False), (False, False)):
        some = [t.detach().requires_grad_(own) for t, own in zip(given, rows)]
        for t in (*some, *net.parameters()):
            t.grad = None
        total(net(*some)).backward()
        of = [*zip(some, given), *((p, p) for p in net.parameters())]
        for own, key in of:
            assert (own.grad is None) != own.requires_grad
            assert own.grad is None or torch.allclose(own.grad, want[key], rtol=1e-12, atol=1e-13)
    for t in net.parameters():
        t.requires_grad_(False)
    assert not any(t.requires_grad for t in net(*(t.detach() for t in given)))


@compiled
def test_one_of_two_outputs():
    """The gradient of an output that nothing reads is missing."""
    net, given = network(), inputs()
    parts = [torch.autograd.grad(t.sum(), given, retain_graph=True) for t in net(*given)]
    both = torch.autograd.grad(sum(t.sum() for t in net(*given)), given)
    for one, other, sum_ in zip(*parts, both, strict=True):
        assert torch.allclose(one + other, sum_, rtol=1e-12, atol=1e-13)


@compiled
def test_graphs_that_are_kept():
    net, given = network(), inputs()
    loss = total(net(*given))
    leaves = [*given, *net.parameters()]
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    assert same(torch.autograd.grad(loss, leaves), first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaves)


@compiled
def test_gradients_of_gradients(python):
    net, given = network(), inputs(3)
    leaves = [*given, *net.parameters()]

    def second():
        found = torch.autograd.grad(total(net(*given)), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in found), leaves)

    for own, want in zip(second(), python(second), strict=True):
        assert torch.allclose(own, want, rtol=1e-10, atol=1e-12)


@compiled
def test_changes_in_place():
    net, given = network(), inputs()
    parameter = next(net.parameters())
    for changed in (parameter, given[0]):
        out = net(*given)
        with torch.no_grad():
            changed.mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as found:
            torch.autograd.grad(sum(t.sum() for t in out), given[1])
        if changed is parameter:
            shape, now = re.escape(str(list(parameter.shape))), parameter._version
            found.match(
                f"parameter 0 of a network, of the shape {shape}, is at version {now}; expected version {now - 1}"
            )


@compiled
def test_hooks_of_saved_tensors():
    """Tensors may be kept elsewhere, and come back as others of the same numbers."""
    net, given = network(), inputs()
    want = gradients(net, given)
    packed, unpacked = [], []

    def pack(tensor):
        packed.append(tensor.numpy(force=True).copy())
        return packed[-1]

    def unpack(array):
        unpacked.append(torch.from_numpy(array))
        return unpacked[-1]

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        outputs = net(*given)
    assert same(torch.autograd.grad(total(outputs), [*given, *net.parameters()]), want)
    # Parameters stay where they are.
    addresses = {p.data_ptr() for p in net.parameters()}
    assert len(packed) == len(unpacked) == len(given) + 2
    assert addresses.isdisjoint(t.data_ptr() for t in unpacked)


@compiled
def test_checkpoints():
    net, given = network(), inputs()
    want = gradients(net, given)
    for reentrant in (False, True):
        outputs = torch.utils.checkpoint.checkpoint(net, *given, use_reentrant=reentrant)
        for t in (*given, *net.parameters()):
            t.grad = None
        total(outputs).backward()
        assert same([t.grad for t in (*given, *net.parameters())], want)


@compiled
def test_batches_of_gradients():
    """Gradients that a transform has batched have no memory, which Python and layers can take."""
    net, given = network(), inputs(3)
    out = net(*given)[0]
    batch = random(4, *out.shape, seed=5)
    at_once = torch.autograd.grad(out, given[0], batch, is_grads_batched=True, retain_graph=True)[0]
    for own, cotangent in zip(at_once, batch, strict=True):
        one = torch.autograd.grad(out, given[0], cotangent, retain_graph=True)[0]
        assert torch.allclose(own, one, rtol=1e-10, atol=1e-12)


@compiled
def test_hooks_of_the_node():
    net, given = network(), inputs()
    seen = []
    out = net(*given)
    node = node_of(out[0])
    node.register_hook(lambda made, incoming: seen.append((len(made), len(incoming))))
    total(out).backward()
    # Inputs are pairs of multivectors and scalars.
    assert seen == [(len(list(net.parameters())) + 2, 2)]


@compiled
def test_anomalies_name_the_network():
    net, (x, s) = network(), inputs()
    with pytest.warns(UserWarning, match=NODE), torch.autograd.detect_anomaly():
        out = net(x * float("nan"), s)[0]
        with pytest.raises(RuntimeError, match="nan"):
            out.sum().backward()


@compiled
def test_graphs_are_freed():
    """Neither a result nor what is kept for gradients keeps its own node alive."""
    net, (x, s) = network(), inputs()
    gc.collect()
    gc.disable()
    try:
        inner = x * 2
        gone = weakref.ref(inner)
        out = net(inner, s)
        total(out).backward()
        out = net(inner, s)
        del inner
        assert gone() is not None
        del out
        assert gone() is None
    finally:
        gc.enable()


@compiled
def test_compiled_autograd():
    """One graph serves all calls on inputs of the same kind."""
    net = network()
    counter = torch._dynamo.testing.CompileCounter()
    compiler = lambda graph: torch.compile(graph, backend=counter, fullgraph=True)  # noqa: E731
    torch._dynamo.reset()
    for at in range(3):
        given = [
            t.detach().mul(1 + at).requires_grad_(own) for t, own in zip(inputs(), (True, False))
        ]
        leaves = [given[0], *net.parameters()]
        want = torch.autograd.grad(total(net(*given)), leaves)
        for t in leaves:
            t.grad = None
        loss = total(net(*given))
        with torch._dynamo.compiled_autograd._enable(compiler):
            loss.backward()
        for t, own in zip(leaves, want, strict=True):
            assert torch.allclose(t.grad, own, rtol=1e-10, atol=1e-12)
    assert counter.frame_count == 1


@compiled
def test_threads():
    net, given = network(), inputs()
    want = gradients(net, given)
    wrong = []

    def work(rows):
        other = inputs(rows)
        for _ in range(30):
            gradients(net, other)
            if not same(gradients(net, given), want):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(3 + at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("how", ["convert", "load"])
def test_parameters_can_be_exchanged_in_place(how):
    """PyTorch's way of conversion for tensors of subclasses wants that nobody else holds the parameters."""
    net, given = network(), inputs()
    want = gradients(net, given)
    state = {name: 2 * value for name, value in net.state_dict().items()}
    before = list(net.parameters())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        if how == "convert":
            net.float()
            assert net.linear_in.weight.dtype == torch.float32
            net.double()
        else:
            net.load_state_dict(state)
            net.load_state_dict({name: value / 2 for name, value in state.items()})
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert all(a is b for a, b in zip(net.parameters(), before, strict=True))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(gradients(net, given), want, strict=True))
