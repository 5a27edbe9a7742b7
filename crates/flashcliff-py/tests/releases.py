"""What tests need that older releases of PyTorch lack."""

from __future__ import annotations

import re

import pytest
import torch


def is_before(release):
    """Whether the installed PyTorch is older than a release, such as 2.9."""
    installed, other = (tuple(map(int, re.match(r"(\d+)\.(\d+)", text).groups())) for text in (torch.__version__, release))
    return installed < other


def since(release, what):
    """Skips a test, or a case, before a release: ``what`` completes "before PyTorch 2.9 ..."."""
    return pytest.mark.skipif(is_before(release), reason=f"before PyTorch {release} {what}")


WHOLE = not is_before("2.9")
"""Whether the compiler traces operators and layers whole: ``fullgraph`` of tests of what compiled functions compute. Otherwise their
graphs end at operators."""

needs_muon = since("2.9", "there is no torch.optim.Muon")
needs_kernels = since("2.9", "kernels of the dispatcher cannot call the kernels below them, so all of the operators are Python's")
says_decay = since("2.8", "states of Adam do not say which decay they have")
