"""Threads and processes: environment variables, PyTorch's number, forks while operators run.

Forked processes use no kernels of PyTorch, whose own threads do not survive a fork.
"""

import os
import subprocess

import pytest
from processes_common import ran

NAMES = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "FLASHCLIFF_SIMD")
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def run(program: str, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    return ran(program, without=NAMES, timeout=timeout, **variables)


def threads(program: str = "", **variables: str) -> str:
    """The number of threads that are in force after a program."""
    done = run(f"import flashcliff\n{program}\nprint(flashcliff.get_num_threads())", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"RAYON_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3,1"}, 3),
        ({"RAYON_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2),
        ({"RAYON_NUM_THREADS": "0", "OMP_NUM_THREADS": "3"}, 3),
        ({"RAYON_NUM_THREADS": "", "OMP_NUM_THREADS": ""}, None),
    ],
)
def test_variables(variables, count):
    expected = threads() if count is None else str(count)
    assert threads(**variables) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["x", "-1", "1.5"])
def test_variables_that_mean_nothing(name, value):
    """The import raises an error, whatever else is set."""
    done = run("import flashcliff", **{name: value})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ValueError: the environment variable {name} must be ")
    assert last.endswith(f"got `{value}`")


def test_too_many_threads():
    done = run("import flashcliff; print(flashcliff.get_num_threads())", RAYON_NUM_THREADS="100000")
    assert done.stdout == f"{8 * CPUS}\n"
    assert "UserWarning: 100000 threads asked for by RAYON_NUM_THREADS" in done.stderr
    program = "import flashcliff; flashcliff.set_num_threads(100000)"
    done = run(f"{program}; print(flashcliff.get_num_threads())")
    assert done.stdout == f"{8 * CPUS}\n"
    assert f"{8 * CPUS} used: at most 8 for each CPU" in done.stderr


@pytest.mark.long
def test_the_number_of_pytorch_is_a_ceiling():
    one = "import torch; torch.set_num_threads(1)"
    assert threads(one, RAYON_NUM_THREADS="4") == "1"
    assert threads("import torch; torch.set_num_threads(3)", RAYON_NUM_THREADS="4") == "3"
    assert threads("import torch; torch.set_num_threads(9)", RAYON_NUM_THREADS="4") == "4"
    assert threads(f"flashcliff.set_num_threads(4); {one}") == "4"
    assert threads("import sys; sys.modules['torch'] = sys", RAYON_NUM_THREADS="4") == "4"


FORKS = """
import os, signal, sys, threading, time, torch, flashcliff
from flashcliff import functional as F
torch.set_num_threads(4)
x, w = torch.randn(8, 512, 64), torch.randn(64, 20)
wanted = F.sgp_norm(x, x, w, (3, 0, 0)).tolist()
done = False

def busy():
    while not done:
        F.sgp_norm(x, x, w, (3, 0, 0))

def restless():
    while not done:
        for threads in (1, 2, 3):
            flashcliff.set_num_threads(threads)

threads = [threading.Thread(target=work) for work in (busy, restless)]
for thread in threads:
    thread.start()
end = time.monotonic() + 4
forks = 0
while time.monotonic() < end:
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed
        os._exit(0 if F.sgp_norm(x, x, w, (3, 0, 0)).tolist() == wanted else 3)
    status = os.waitpid(child, 0)[1]
    if status:
        done = True
        sys.exit(f"the child: {status}")
    forks += 1
done = True
for thread in threads:
    thread.join()
print(forks)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forks_while_operators_run():
    done = run(FORKS, RAYON_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


def test_no_thread_allowed():
    """Operators run on the calling thread, before and after a fork."""
    program = """
import os, flashcliff, torch
from flashcliff import functional as F
torch.set_num_threads(8)
x, w = torch.randn(8, 512, 64), torch.randn(64, 20)
o = F.sgp_norm(x, x, w, (3, 0, 0)).tolist()
try:
    flashcliff.set_num_threads(4)
except RuntimeError as error:
    print(error)
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        os._exit(0 if F.sgp_norm(x, x, w, (3, 0, 0)).tolist() == o else 3)
    assert os.waitpid(child, 0)[1] == 0
print(flashcliff.get_num_threads())
"""
    # No address space has room for such a stack.
    done = run(program, RAYON_NUM_THREADS="4", RUST_MIN_STACK=str(1 << 50))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("cannot start 4 threads: ") and second == "1"
