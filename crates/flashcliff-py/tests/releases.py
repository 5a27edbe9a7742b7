"""Stand-ins and reasons to skip for tests of features that older releases of PyTorch lack."""

from __future__ import annotations

import pytest

from flashcliff._torch import is_before

__all__ = ["WHOLE", "is_before", "needs_kernels", "needs_muon", "says_decay", "since"]


def since(release, what):
    """Skips a test, or a case, before a release: ``what`` completes "before PyTorch 2.9 ..."."""
    return pytest.mark.skipif(is_before(release), reason=f"before PyTorch {release} {what}")


WHOLE = not is_before("2.9")
"""Whether the compiler traces operators and layers whole: ``fullgraph`` of tests of what compiled functions compute. Otherwise their
graphs end at operators."""

needs_muon = since("2.9", "there is no torch.optim.Muon")
needs_kernels = since("2.9", "kernels of the dispatcher cannot call the kernels below them, so all of the operators are Python's")
says_decay = since("2.8", "states of Adam do not say which decay they have")
