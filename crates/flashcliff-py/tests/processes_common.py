"""Programs in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container


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
