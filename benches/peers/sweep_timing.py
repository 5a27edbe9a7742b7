"""Time and memory of variants on a GPU."""

import statistics

import torch


def passes(function, tensors, grad):
    """The two passes that are measured: forward alone, and forward with backward."""
    leaves = [t.detach().requires_grad_() for t in tensors]

    def forward():
        with torch.no_grad():
            return function(*leaves)

    def both():
        output = function(*leaves)
        return output, torch.autograd.grad(output, leaves, grad)

    return {"forward": forward, "forward+backward": both}


def take_turns(functions, flush, samples):
    """Median seconds of functions that take turns, each after a flush of the L2 cache.

    Twice: `eager`, as a program sees it that does nothing else, and `queued`, with the launches
    already waiting when the GPU gets to them, which is the GPU's own time.
    """
    for function in functions.values():
        for _ in range(3):
            function()
    result = {name: {} for name in functions}
    spin = {}
    for mode in ("eager", "queued"):
        events = {name: [] for name in functions}
        late = {name: 0 for name in functions}
        for _ in range(samples):
            for name, function in functions.items():
                flush.zero_()
                if mode == "queued":
                    torch.cuda._sleep(spin[name])
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                function()
                late[name] += mode == "queued" and begin.query()
                end.record()
                events[name].append((begin, end))
        torch.cuda.synchronize()
        for name, pairs in events.items():
            times = [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]
            result[name][mode] = statistics.median(times)
            # The time is in cycles of a clock of at most 2 GHz, and longer than the host needs for
            # the launches.
            spin[name] = int(2e9 * min(1.5 * result[name]["eager"] + 5e-4, 1e-2))
            if late[name]:
                # In these samples the GPU had to wait for launches, so their times are too long.
                result[name]["late"] = late[name]
    return result


def peak(function):
    """The bytes that a call takes at its peak, beyond those before it."""
    function()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = function()
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - before
    del results
    return taken
