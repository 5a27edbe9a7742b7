"""Handlers know XLA's C interface as the header in jaxlib declares it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from flashcliff import _core

jax = pytest.importorskip("jax")

COMPILER = next((own for own in ("cc", "gcc", "clang") if shutil.which(own)), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def of_header(fields, constants, folder):
    """The same fields and constants by a program of C that includes the header."""
    lines = [f'printf("%lld\\n", (long long)({name}));' for name, _ in constants]
    lines += [
        f'printf("%zu %zu\\n", offsetof({own}, {name}), sizeof((({own} *)0)->{name}));'
        for own, name, *_ in fields
    ]
    code = "\n".join(lines)
    text = f"""#include <stddef.h>
#include <stdio.h>
#include <xla/ffi/api/c_api.h>
int main(void) {{
{code}
return 0;
}}
"""
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(text)
    command = [COMPILER, f"-isystem{jax.ffi.include_dir()}", source, "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    numbers = [tuple(map(int, line.split())) for line in printed.splitlines()]
    values = [(name, value) for (name, _), (value,) in zip(constants, numbers)]
    places = zip(fields, numbers[len(constants) :], strict=True)
    return [(own, name, *place) for (own, name, *_), place in places], values


def test_layouts_are_those_of_the_header(tmp_path):
    fields, constants = _core.jax_layout()
    assert len({own for own, *_ in fields}) == 15 and len(constants) == 17
    theirs, values = of_header(fields, constants, tmp_path)
    assert theirs == fields
    assert values == constants


def test_another_layout_is_found(tmp_path):
    fields, constants = _core.jax_layout()
    # The element type and the address of a buffer take turns.
    swapped = {"dtype": "data", "data": "dtype"}
    wrong = [
        (own, swapped.get(name, name) if own == "XLA_FFI_Buffer" else name, *place)
        for own, name, *place in fields
    ]
    theirs, _ = of_header(wrong, constants, tmp_path)
    assert theirs != wrong
