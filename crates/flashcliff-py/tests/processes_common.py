"""Programs in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container

FORKED = """
import os, sys, traceback


def forked(function, *given):
    \"\"\"The status of a child that calls a function, and what it wrote to its output and for errors.\"\"\"
    files = [os.memfd_create("out"), os.memfd_create("err")]
    process = os.fork()
    if not process:
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
        try:
            status = function(*given)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    said = []
    for file in files:
        os.lseek(file, 0, 0)
        said.append(os.read(file, 1 << 20).decode().strip())
        os.close(file)
    return [status, *said]
"""
"""The start of a program with children that a damaged file, or a mode of PyTorch, may end."""


def ran(
    program: str, *, without: Container[str] = (), timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What became of a program of Python, without some variables of the environment, and with others."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=kept | variables, capture_output=True, text=True, timeout=timeout)


def printed(program: str, **options) -> str:
    """What a program prints that ends well."""
    done = ran(program, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
