"""Files of the compiled call path in the cache that are damaged, or not what was written, end no process and are not believed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes_common import FORKED

import flashcliff.functional  # noqa: F401  (which loads the compiled call path)
from flashcliff import _cache, native

compiled = pytest.mark.built
is_root = hasattr(os, "geteuid") and os.geteuid() == 0

# Runs each task in its own process, which a damaged file may end: a folder, the variable, and what to do.
TASKS = f"""{FORKED}
import json
import torch, flashcliff


def call():
    import flashcliff.native
    from pathlib import Path

    flashcliff.native._SHIPPED = Path("nothing")
    from flashcliff import functional as F

    turned = F.reverse(torch.arange(8.0).reshape(8, 1, 1), (3, 0, 0))
    assert turned.flatten().tolist() == [0, 1, 2, 3, -4, -5, -6, -7]
    print(flashcliff.native.is_active())
    return 0


def build():
    from flashcliff import native

    return native.main()


def child(folder, variable, what):
    os.environ.update(FLASHCLIFF_CACHE_DIR=folder, FLASHCLIFF_NATIVE=variable)
    return call() if what == "call" else build()


print(json.dumps([forked(child, *task) for task in json.load(sys.stdin)]))
"""


def run(*tasks):
    """The status of each task, and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", TASKS], input=json.dumps(tasks), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [tuple(result) for result in json.loads(done.stdout)]


def call(path, variable=""):
    return str(path.parents[2]), variable, "call"


def build(path):
    return str(path.parents[2]), "", "build"


def copied(folder):
    """The compiled call path in a separate cache, and a compiler that takes no time: it gives a copy."""
    good = native._built()
    path = folder / "native" / good.parent.name / good.name
    shutil.copytree(good.parent, path.parent)
    return path


@pytest.fixture(autouse=True)
def compiler(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("compiler")
    if native._built().is_file():
        shutil.copy(native._built(), folder / "kept")
    file = folder / "c++"
    file.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {folder}/kept "$2"\n')
    file.chmod(0o755)
    monkeypatch.setenv("CXX", str(file))
    return file


@pytest.fixture
def built(tmp_path):
    return copied(tmp_path / "cache")


def seal(path):
    return path.with_name(path.name + ".sha256")


def overwrite(make):
    """Writes other contents over the file, as a copy that was cut short does."""
    return lambda path: path.write_bytes(make(path.read_bytes()))


def in_its_place(make):
    def spoil(path):
        path.unlink()
        make(path)

    return spoil


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGE = {
    "empty": overwrite(lambda data: b""),
    "half": overwrite(lambda data: data[: len(data) // 2]),
    "most": overwrite(lambda data: data[:-1]),
    "zeros": overwrite(lambda data: bytes(len(data))),
    "a page": overwrite(lambda data: data[:4096]),
    "a page and zeros": overwrite(lambda data: data[:4096] + bytes(len(data) - 4096)),
    "a header": overwrite(lambda data: data[:64]),
    "more bytes": overwrite(lambda data: data + b"more"),
    "one bit": overwrite(flipped),
    "text": overwrite(lambda data: b"no library"),
    "another library": overwrite(
        lambda data: Path(sys.modules["flashcliff._core"].__file__).read_bytes()
    ),
    "a folder": in_its_place(lambda path: (path.mkdir(), (path / "work").write_text("kept"))),
    "a link to nothing": in_its_place(lambda path: path.symlink_to(path.parent / "nothing")),
    "a link to itself": in_its_place(lambda path: path.symlink_to(path)),
    "a pipe": in_its_place(os.mkfifo),
    "no seal": lambda path: seal(path).unlink(),
    "an empty seal": lambda path: seal(path).write_bytes(b""),
    "half a seal": lambda path: seal(path).write_bytes(seal(path).read_bytes()[:20]),
    "a seal of zeros": lambda path: seal(path).write_bytes(bytes(80)),
    "a long seal": lambda path: seal(path).write_bytes(seal(path).read_bytes() * 1000),
    "a folder for a seal": lambda path: (seal(path).unlink(), seal(path).mkdir()),
    "a pipe for a seal": lambda path: (seal(path).unlink(), os.mkfifo(seal(path))),
    # Both files are whole, and of another PyTorch.
    "of other versions": lambda path: _cache.replace(
        path, lambda made: made.write_bytes(path.read_bytes()), "0.1.0-0123456789abcdef"
    ),
}


@compiled
def test_damage(tmp_path, compiler):
    paths, tasks = {}, []
    for damage, spoil in DAMAGE.items():
        paths[damage] = path = copied(tmp_path / damage)
        spoil(path)
        tasks += [call(path), call(path, "1"), call(path, "0"), build(path), call(path, "1")]
    results = iter(run(*tasks))
    for damage, path in paths.items():
        by_chance, insisting, without, made, again = (next(results) for _ in range(5))
        assert by_chance[:2] == (0, "False"), (damage, by_chance)
        assert by_chance[2].count("Warning: ") == 1, (damage, by_chance)
        assert "python -m flashcliff.native" in by_chance[2], (damage, by_chance)
        assert insisting[0] == 1, (damage, insisting)
        assert "ImportError: FLASHCLIFF_NATIVE=1" in insisting[2], (damage, insisting)
        assert without == (0, "False", ""), (damage, without)
        assert made == (0, str(path), ""), (damage, made)
        assert again == (0, "True", ""), (damage, again)
        aside = [file.read_text() for file in path.parent.rglob("work")]
        assert aside == (["kept"] if damage == "a folder" else []), damage


@compiled
def test_what_is_whole_is_not_built_again(built, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    before = built.stat().st_mtime_ns
    assert run(call(built), build(built)) == [(0, "True", ""), (0, str(built), "")]
    assert built.stat().st_mtime_ns == before


@pytest.mark.long
@compiled
def test_a_file_that_was_built_and_cannot_be_loaded_is_built_again(built):
    _cache.replace(built, lambda made: made.write_bytes(b"no library"), built.parent.name)
    first, made, again = run(call(built), build(built), call(built))
    assert first[:2] == (0, "False") and first[2].count("Warning: ") == 1, first
    assert made[0] == 0 and again == (0, "True", "")


@compiled
@pytest.mark.skipif(is_root, reason="permissions do not bind this user")
def test_permissions(built):
    for path in (built, seal(built)):
        path.chmod(0)
        first, made, again = run(call(built), build(built), call(built))
        assert first[:2] == (0, "False") and made[0] == 0 and again == (0, "True", "")
    built.parent.chmod(0o555)
    try:
        # A folder that cannot be written serves.
        assert run(call(built), build(built)) == [(0, "True", ""), (0, str(built), "")]
        built.write_bytes(b"")
        first, made = run(call(built), build(built))
        assert first[:2] == (0, "False")
        assert made[0] == 1 and "cannot be built: " in made[2] and "Traceback" not in made[2]
    finally:
        built.parent.chmod(0o755)


@compiled
def test_a_file_in_place_of_the_folder(built):
    shutil.rmtree(built.parent)
    built.parent.write_text("no folder")
    first, made = run(call(built), build(built))
    assert first == (0, "False", "")
    assert made[0] == 1 and "cannot be built: " in made[2] and "Traceback" not in made[2]


@pytest.mark.long
@compiled
def test_builds_at_once(built, compiler):
    """They leave a whole file, though compilers give different ones."""
    compiler.write_text(compiler.read_text() + 'printf %s $$ >>"$2"\n')
    seal(built).unlink()
    with ThreadPoolExecutor(3) as pool:
        done = [one for some in pool.map(lambda _: run(build(built)), range(3)) for one in some]
    assert done == [(0, str(built), "")] * 3
    assert run(call(built, "1")) == [(0, "True", "")]
    assert sorted(built.parent.iterdir()) == [built, seal(built)]


def test_pairs_are_whole_at_any_time(tmp_path):
    """Readers in another thread never see the file of one writer with the seal of another."""
    path = tmp_path / "file"

    def write(text):
        _cache.replace(path, lambda made: made.write_text(text), "key")

    write("0")
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, str(at) * 100) for at in range(60)]
        while not all(writer.done() for writer in writers):
            assert _cache.is_sealed(path, "key")
    assert not _cache.is_sealed(path, "another key")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    _cache.replace(path, lambda made: made.write_text("old"), "key")

    def fail(made):
        made.write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        _cache.replace(path, fail, "key")
    assert path.read_text() == "old" and _cache.is_sealed(path, "key")
    assert len(list(tmp_path.iterdir())) == 2
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
