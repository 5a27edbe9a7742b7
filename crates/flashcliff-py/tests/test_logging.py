"""Messages of the library reach Python's ``logging``, and nothing that handlers do stops an operator.

The message on a CPU says that the system starts no threads, which it does not if their stacks are
larger than any address space.
"""

import subprocess

import pytest
from processes_common import ran

REFUSED = {"RUST_MIN_STACK": str(1 << 50), "RAYON_NUM_THREADS": "3"}
SAYS = "3 threads asked for by RAYON_NUM_THREADS, used: the calling thread alone, since the system"

HANDLER = """
import logging, threading
import flashcliff

class Handler(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.name, record.getMessage())
        act()

logger = logging.getLogger("flashcliff")
logger.addHandler(Handler())
logger.propagate = False
"""
CALL = "\nprint(flashcliff.get_num_threads())"


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = ran(program, without=("RAYON_NUM_THREADS", "OMP_NUM_THREADS"), **variables)
    assert done.returncode == 0, done.stderr
    return done


def test_warnings_are_seen_by_default():
    done = run("import flashcliff" + CALL, **REFUSED)
    assert done.stdout == "1\n"
    assert done.stderr.startswith(SAYS) and done.stderr.count("\n") == 1


def test_what_leaves_the_fast_way_says_so_once():
    program = """
import torch
from flashcliff import Algebra
from flashcliff.nn.transformer import GATransformer

net = GATransformer(Algebra(1, 3, 0), 1, 1, 4, blocks=2, attention={"heads": 2})
x = torch.randn(16, 2, 3, 1)
net(x)
print("plain")
for block in net.blocks:
    block.mlp.register_forward_hook(lambda *_: None)
for _ in range(2):
    net(x)
"""
    done = run(program)
    assert done.stdout == "plain\n"
    said = done.stderr.splitlines()
    assert said and len(set(said)) == len(said)
    calls = " calls its layers one by one, which takes longer than one function: "
    kinds = {line.partition(calls)[0] for line in said}
    assert kinds == {"Block", "GATransformer"}
    assert all("has hooks (forward_hooks)" in line for line in said)


def test_loggers_decide():
    quiet = "import logging; logging.getLogger('flashcliff').setLevel(logging.ERROR)\n"
    done = run(quiet + "import flashcliff" + CALL, **REFUSED)
    assert (done.stdout, done.stderr) == ("1\n", "")
    done = run(HANDLER + "act = lambda: None" + CALL, **REFUSED)
    assert done.stdout.startswith(f"WARNING flashcliff {SAYS}") and done.stdout.endswith("\n1\n")
    assert done.stderr == ""


def test_what_python_warns_of_is_not_logged_too():
    done = run("import flashcliff" + CALL, RAYON_NUM_THREADS="100000")
    assert done.stderr.count("threads asked for") == 1 and "UserWarning" in done.stderr
    done = run("import flashcliff; flashcliff.set_num_threads(100000)" + CALL)
    assert done.stderr.count("threads asked for") == 1 and "UserWarning" in done.stderr


def test_the_import_does_not_import_logging():
    done = run("import flashcliff, sys; flashcliff.Algebra(3); print('logging' in sys.modules)")
    assert done.stdout == "False\n"


def test_handlers_may_run_operators():
    act = "def act():\n    print(flashcliff.get_num_threads())\n"
    done = run(HANDLER + act + CALL, **REFUSED)
    assert done.stdout.splitlines()[1:] == ["1", "1"]


def test_handlers_may_wait_for_threads_that_run_operators():
    act = """
def act():
    thread = threading.Thread(target=lambda: print(flashcliff.get_num_threads()), daemon=True)
    thread.start()
    thread.join(60)
    print("waits" if thread.is_alive() else "joined")
"""
    done = run(HANDLER + act + CALL, **REFUSED)
    assert done.stdout.splitlines()[1:] == ["1", "joined", "1"]


def test_errors_of_handlers_do_not_stop_operators():
    act = "logger.addFilter(lambda record: 1 / 0)"
    done = run(HANDLER + act + CALL, **REFUSED)
    assert done.stdout == "1\n" and "ZeroDivisionError" in done.stderr


def test_interrupts_in_handlers_arrive():
    # Python takes Ctrl-C only if its parent did not ignore it, as shells do for what runs in the background.
    act = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def act():
    raise KeyboardInterrupt
try:
    flashcliff.get_num_threads()
    for _ in range(1000):
        pass
    print("lost")
except KeyboardInterrupt:
    print("arrived")
"""
    done = run(HANDLER + act, **REFUSED)
    assert done.stdout.splitlines()[1:] == ["arrived"] and done.stderr == ""


def test_nothing_is_logged_at_the_end():
    """Functions that are registered first run last."""
    program = "import atexit\natexit.register(lambda: print(flashcliff.get_num_threads()))\n"
    done = run(program + HANDLER + "act = lambda: None", **REFUSED)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.cuda
def test_compilation_on_a_gpu(tmp_path):
    """Kernels are compiled on separate threads, while Python's lock is free."""
    program = """
import torch
from flashcliff import functional as F
x = torch.ones(8, 4, 32, device="cuda")
for name in F.geometric_product, F.geometric_product:
    name(x, x, (1, 1, 1))
"""
    show = (
        "import logging; logging.basicConfig(level=logging.INFO, format='%(name)s %(message)s')\n"
    )
    # The cache of the test has no compiled call path.
    cache = {"FLASHCLIFF_CACHE_DIR": str(tmp_path), "FLASHCLIFF_NATIVE": "0"}
    interpreted, first, *rest = run(show + program, **cache).stderr.splitlines()
    assert interpreted.startswith("flashcliff Cl(1,1,1) is not among the algebras")
    assert first.startswith("flashcliff compiling geometric_product") and "once" in first
    assert any(line.startswith("flashcliff compiled geometric_product") for line in rest)
    # The second process reads the code, and nothing is said by default.
    assert run(show + program, **cache).stderr.splitlines() == [interpreted]
    cache["FLASHCLIFF_CACHE_DIR"] = str(tmp_path / "other")
    assert run(program, **cache).stderr == ""


def test_an_algebra_without_kernels_is_a_message_once():
    program = HANDLER + (
        "act = lambda: None\nlogger.setLevel(logging.INFO)\n"
        "flashcliff.Algebra(3); flashcliff.Algebra(2, 1, 1); flashcliff.Algebra(2, 1, 1)\n"
        "flashcliff._core.Algebra(2, 1, 1); flashcliff.Algebra(1, 1, 1)\n"
    )
    lines = run(program).stdout.splitlines()
    assert [line.split(" is not")[0] for line in lines] == [
        "INFO flashcliff Cl(2,1,1)",
        "INFO flashcliff Cl(1,1,1)",
    ]
    assert "interpreted" in lines[0]
    assert run("import flashcliff; flashcliff.Algebra(2, 1, 1)").stderr == ""
