"""What `flashcliff.info` says, and that it names what is slow."""

from __future__ import annotations

import pytest
from processes_common import printed

import flashcliff
from flashcliff import __main__ as program
from flashcliff import _info


def whats(found):
    return [own.what for own in found.slow]


def test_it_says_what_the_build_says():
    found, built = flashcliff.info(), flashcliff.build_info()
    assert {name: getattr(found, name) for name in built} == built
    assert "Cl(3,0,0)" in found.kernels and found.packages["torch"]
    text = str(found)
    assert found.version in text and "slow here:" in text
    assert all(own.remedy in text for own in found.slow)


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("FLASHCLIFF_SIMD", "scalar", "kernels on the CPU"),
        ("FLASHCLIFF_CACHE_DIR", "/dev/null/none", "the first call"),
    ],
)
def test_what_is_slow_has_a_remedy(monkeypatch, variable, value, what):
    monkeypatch.setenv(variable, value)
    assert what in whats(flashcliff.info())
    monkeypatch.delenv(variable)


def test_a_writable_cache_and_all_threads_are_not_slow(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHCLIFF_CACHE_DIR", str(tmp_path / "new"))
    monkeypatch.delenv("FLASHCLIFF_SIMD", raising=False)
    monkeypatch.setattr(_info._core, "get_num_threads", _info._processors)
    found = flashcliff.info()
    assert not {"the first call", "large tensors on the CPU", "kernels on the CPU"} & {
        *whats(found)
    }


def test_fewer_threads_than_processors_are_named(monkeypatch):
    monkeypatch.setattr(_info, "_processors", lambda: 64)
    assert "large tensors on the CPU" in whats(flashcliff.info())


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((False, ("a GPU",), ""), ["the GPU"]),
        ((True, ("a GPU",), ""), ["algebras without compiled kernels on GPUs"]),
        ((True, ("a GPU",), "libnvrtc.so.13"), []),
        ((True, (), ""), []),
    ],
)
def test_gpus(given, what):
    assert [own.what for own in _info._of_gpus(*given)] == what


def test_algebras_that_a_wheel_has_are_named_where_a_build_has_them_not():
    assert _info._of_kernels(_info._WHEEL | {(1, 1, 1)}) == []
    (found,) = _info._of_kernels(_info._WHEEL - {(3, 0, 1)})
    assert found.what == "Cl(3,0,1)" and "all-algebras" in found.remedy


def test_without_torch_it_still_answers():
    code = "import sys; sys.modules['torch'] = None; import flashcliff; print(flashcliff.info())"
    said = printed(code)
    assert "calls: none" in said and "pip install torch" in said


def test_the_program_prints_it(capsys):
    assert program.command(["info"]) == 0
    assert str(flashcliff.__version__) in capsys.readouterr().out
    assert program.command(["infos"]) == 2
    assert "got `infos`" in capsys.readouterr().err
