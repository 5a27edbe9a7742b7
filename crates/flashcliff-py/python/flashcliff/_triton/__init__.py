"""Triton kernels of lane operators, for accelerators that the extension has no kernels for: AMD and Intel GPUs.

The extension emits the text of the kernels (``codegen/src/emit/triton``), ``sources`` makes modules of it, ``tiles`` says how large tiles
are, ``launch`` calls them, and ``functions`` is what emitted text calls. :mod:`flashcliff._ops.backends` chooses.
"""
