"""Gradients of parameters that the node of a network puts in place itself, and all cases in which it leaves that to PyTorch."""

import threading

import pytest
import torch
from described_common import network
from nn_common import random
from test_native_networks import NODE, inputs, node_of, same, total

pytestmark = pytest.mark.native


def cleared(net):
    for p in net.parameters():
        p.grad = None


def of(net):
    return [p.grad for p in net.parameters()]


def wanted(net, given):
    """The gradients of parameters, which PyTorch returns here and puts nowhere."""
    return torch.autograd.grad(total(net(*given)), list(net.parameters()))


def leaves_of(node):
    """The leaves that the engine of autograd visits after a node: none, or one more than must be left to it."""
    return [other for other, _ in node.next_functions if other is not None]


def backward(net, given, more=lambda: 0.0, **options):
    """A backward pass, and the leaves that were left to PyTorch."""
    outputs = net(*given)
    node = node_of(outputs[0])
    (total(outputs) + more()).backward(**options)
    return leaves_of(node)


def test_gradients_are_put_in_place():
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    assert not backward(net, given)
    assert same(of(net), want)
    assert all(p.grad.is_contiguous() and not p.grad.requires_grad for p in net.parameters())
    assert all(p.grad.data_ptr() % 64 == 0 for p in net.parameters())
    before = of(net)
    assert not backward(net, given)
    assert all(p.grad is own for p, own in zip(net.parameters(), before, strict=True))
    assert same(of(net), [2 * g for g in want])
    assert all(g._version == 1 for g in before)


def test_inputs_have_gradients_too():
    """One leaf is left to PyTorch, so that the engine knows the stream of leaves."""
    net, given = network(), inputs()
    want = torch.autograd.grad(total(net(*given)), [*given, *net.parameters()])
    left = backward(net, given)
    assert len(left) == len(given) + 1
    assert same([*(t.grad for t in given), *of(net)], want)


def test_some_parameters():
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    frozen = list(net.parameters())[::2]
    for p in frozen:
        p.requires_grad_(False)
    assert not backward(net, given)
    for p, g in zip(net.parameters(), want, strict=True):
        assert p.grad is None if not p.requires_grad else torch.allclose(p.grad, g, rtol=1e-12)


def test_parameters_that_are_frozen_before_the_backward_pass():
    """PyTorch adds nothing to them, as in adversarial training, where one of two networks is frozen in between."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    outputs = net(*given)
    frozen, others = list(net.parameters())[::2], list(net.parameters())[1::2]
    for p in frozen:
        p.requires_grad_(False)
    total(outputs).backward()
    assert all(p.grad is None for p in frozen)
    assert same([p.grad for p in others], want[1::2])


def test_hooks_of_parameters():
    """Hooks of a tensor, of its node, and those that follow the sum are called, and what they return counts."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    first, second, third, *_ = net.parameters()
    seen = []
    first.register_hook(lambda g: 3 * g)
    second.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    task = third.expand_as(third).grad_fn.next_functions[0][0]
    task.register_hook(lambda _, incoming: seen.append(incoming[0].clone()))
    assert len(backward(net, given)) == 3 + 1
    assert same(of(net), [3 * want[0], *want[1:]])
    assert len(seen) == 2
    assert {g.shape for g in seen} == {second.shape, third.shape}


def test_a_task_that_someone_holds():
    """It may get hooks at any time. Libraries for many GPUs do that."""
    net, given = network(), [t.detach() for t in inputs()]
    want, first = wanted(net, given), next(net.parameters())
    task = first.expand_as(first).grad_fn.next_functions[0][0]
    assert len(backward(net, given)) == 1 + 1
    assert same(of(net), want)
    cleared(net)
    del task
    assert not backward(net, given)
    assert same(of(net), want)


def test_other_uses_of_a_parameter():
    """A sum of gradients waits for all of them."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    first, *_ = net.parameters()
    assert len(backward(net, given, lambda: 5 * first.sum())) == 1 + 1
    assert torch.allclose(first.grad, want[0] + 5, rtol=1e-12)
    assert same(of(net)[1:], want[1:])


def test_a_network_that_is_called_twice():
    net, given, others = network(), *([t.detach() for t in inputs(rows)] for rows in (5, 3))
    want = [a + b for a, b in zip(wanted(net, given), wanted(net, others), strict=True)]
    (total(net(*given)) + total(net(*others))).backward()
    assert all(torch.allclose(g, w, rtol=1e-11) for g, w in zip(of(net), want, strict=True))


def test_a_graph_that_nobody_runs():
    """Leaves of a graph that is alive have their tasks."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    other = net(*given)
    assert len(backward(net, given)) == len(want)
    assert same(of(net), want)
    total(other).backward()
    assert same(of(net), [2 * g for g in want])


def test_graphs_that_are_kept():
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    outputs = net(*given)
    node, loss = node_of(outputs[0]), total(outputs)
    loss.backward(retain_graph=True)
    assert len(leaves_of(node)) == len(want)
    loss.backward()
    assert same(of(net), [2 * g for g in want])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_some_inputs():
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    first, *others = net.parameters()
    total(net(*given)).backward(inputs=[first])
    assert torch.equal(first.grad, want[0])
    assert all(p.grad is None for p in others)


def test_gradients_with_a_graph():
    net, given = network(), [t.detach() for t in inputs(3)]
    want = wanted(net, given)
    with pytest.warns(UserWarning, match="create_graph"):
        total(net(*given)).backward(create_graph=True)
    assert all(p.grad.requires_grad for p in net.parameters())
    assert all(torch.allclose(g, w, rtol=1e-10) for g, w in zip(of(net), want, strict=True))
    cleared(net)


def test_hooks_of_the_node():
    """They see the gradients of all leaves."""
    net, given = network(), [t.detach() for t in inputs()]
    outputs, seen = net(*given), []
    node = node_of(outputs[0])
    node.register_hook(lambda made, _: seen.append([g is not None for g in made]))
    total(outputs).backward()
    assert sum(seen[0]) == len(list(net.parameters())) == len(leaves_of(node))


def test_anomalies():
    """The gradient of a parameter alone may be no number."""
    net, given = network(), [t.detach() for t in inputs()]
    with torch.no_grad():
        list(net.parameters())[-1].fill_(float("nan"))
    with pytest.warns(UserWarning, match=NODE), torch.autograd.detect_anomaly():
        outputs = net(*given)
        with pytest.raises(RuntimeError, match="nan"):
            outputs[0].sum().backward()


def test_gradients_of_other_kinds():
    """Sums that are no arrays of the same shape are PyTorch's."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    first, second, *_ = net.parameters()
    first.grad = torch.zeros_like(first).to_sparse()
    second.grad = torch.zeros_like(second).flatten()[torch.arange(second.numel())].view_as(second)
    assert len(backward(net, given)) == 1 + 1
    assert torch.equal(first.grad.to_dense(), want[0])
    assert same(of(net)[1:], want[1:])


def test_parameters_of_functions():
    """Parameters that are results of other nodes are no leaves."""
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    for p in net.parameters():
        p.data.div_(2)
    made = {name: 2 * p for name, p in net.named_parameters()}
    total(torch.func.functional_call(net, made, tuple(given))).backward()
    assert same(of(net), [2 * g for g in want])


def test_threads_that_share_parameters():
    net, given = network(), [t.detach() for t in inputs()]
    want = wanted(net, given)
    repeats = 20

    def work():
        for _ in range(repeats):
            total(net(*given)).backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, g in zip(of(net), want, strict=True):
        assert torch.allclose(own, 4 * repeats * g, rtol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("has_gradient", [False, True])
def test_streams(has_gradient):
    """Gradients of a pass on another stream are there for the stream that asked for them."""
    net = network().float().cuda()
    given = [t.detach().float().cuda().requires_grad_(has_gradient) for t in inputs(4000)]
    want = wanted(net, given)
    side, busy = torch.cuda.Stream(), random(4000, 4000).float().cuda()
    for _ in range(5):
        cleared(net)
        torch.cuda.synchronize()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(20):
                busy = busy @ busy
            loss = total(net(*given))
        loss.backward()
        found = [p.grad.clone() for p in net.parameters()]
        assert same(found, want)
