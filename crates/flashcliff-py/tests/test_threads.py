"""Settings of one thread are not seen by another."""

import asyncio
import threading

import pytest
import torch

from flashcliff.compat import lgatr
from flashcliff.nn.transformer import described


def elsewhere(function):
    """The result of a function in another thread."""
    found = []

    def run():
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def network(**options):
    torch.manual_seed(0)
    sizes = dict(in_v_channels=2, out_v_channels=1, hidden_v_channels=4, num_blocks=1, num_heads=2)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=12)
    return lgatr.LGATrSlim(**sizes, **options), (torch.randn(2, 5, 2, 4), torch.randn(2, 5, 3))


def low(net, inputs):
    """The result of layers under autocast. One function computes in float32."""
    with torch.autocast("cpu", torch.bfloat16), described.by_layers():
        return net(*inputs)


def test_naive_amp_is_of_a_thread():
    net, inputs = network()
    want = low(net, inputs)
    with lgatr.naive_amp():
        found = elsewhere(lambda: low(net, inputs))
        here = low(net, inputs)
    assert [x.dtype for x in found] == [x.dtype for x in want]
    assert all(map(torch.equal, found, want))
    assert here[0].dtype == torch.bfloat16 != want[0].dtype
    assert all(map(torch.equal, low(net, inputs), want))


def test_naive_amp_is_of_a_task():
    net, inputs = network()

    async def first(entered, done):
        with lgatr.naive_amp():
            entered.set()
            await done.wait()
            return low(net, inputs)[0].dtype

    async def second(entered, done):
        await entered.wait()
        found = low(net, inputs)[0].dtype
        done.set()
        return found

    async def both():
        events = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(first(*events), second(*events))

    assert asyncio.run(both()) == [torch.bfloat16, torch.float32]


def test_naive_amp_counts_in_many_threads():
    def enter():
        for _ in range(20000):
            with lgatr.naive_amp():
                pass

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    net, inputs = network()
    assert low(net, inputs)[0].dtype == torch.float32


@pytest.mark.parametrize("by_context", [False, True])
def test_blocks_are_computed_again_in_the_same_type(by_context):
    gradients = []
    for again in (False, True):
        net, inputs = network(naive_amp=not by_context, checkpoint_blocks=again)
        with described.by_layers():
            with lgatr.naive_amp(by_context):
                found = low(net, inputs)
            sum(x.float().sum() for x in found).backward()
        gradients.append([p.grad for p in net.parameters() if p.grad is not None])
    assert all(map(torch.equal, *gradients))
