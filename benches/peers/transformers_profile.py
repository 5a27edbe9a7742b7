"""Where the time of a call goes on a GPU: its kernels, what the host asks of the driver, and PyTorch's operators."""

import torch
from torch.profiler import ProfilerActivity

WAITS = (
    "Synchronize",
    "cudaMemcpy",
    "LaunchKernel",
    "LaunchCooperative",
    "cudaMemset",
    "cudaMalloc",
)


def profile(function, device, calls=3, kernels=40, operators=25):
    """Prints tables for one call: kernels, calls of the CUDA runtime, operators."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    for _ in range(3):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as found:
        for _ in range(calls):
            function()
        if device == "cuda":
            torch.cuda.synchronize()
    # Ranges that PyTorch marks, such as the optimiser's step, are on the GPU's time line too.
    averages = [e for e in found.key_averages() if not e.is_user_annotation]
    on_gpu = [e for e in averages if e.device_type != torch.autograd.DeviceType.CPU]
    on_host = [e for e in averages if e.device_type == torch.autograd.DeviceType.CPU]
    if on_gpu:
        copies = [e for e in on_gpu if e.key.startswith(("Memcpy", "Memset"))]
        launched = sum(e.count for e in on_gpu) - sum(e.count for e in copies)
        total = sum(e.self_device_time_total for e in on_gpu)
        print(
            f"{launched / calls:.0f} kernels and {sum(e.count for e in copies) / calls:.0f} copies or fills a call, "
            f"{total / calls / 1e3:.3f} ms of the GPU"
        )
        _table("kernel", on_gpu, calls, "self_device_time_total", kernels)
        _table("operator, its kernels", on_host, calls, "self_device_time_total", operators)
        runtime = [e for e in on_host if any(word in e.key for word in WAITS)]
        _table("call of the runtime, time of the host", runtime, calls, "self_cpu_time_total", 12)
    else:
        _table("operator, time of the host", on_host, calls, "self_cpu_time_total", operators)


def _table(title, events, calls, clock, rows):
    """The events with most time: microseconds and number for one call."""
    print(f"{'us':>10} {'number':>8}  {title}")
    found = sorted(events, key=lambda e: getattr(e, clock), reverse=True)
    for event in found[:rows]:
        time = getattr(event, clock)
        if time:
            print(f"{time / calls:>10.1f} {event.count / calls:>8.1f}  {event.key[:140]}")
