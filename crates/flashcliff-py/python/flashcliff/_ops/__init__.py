"""The operators for PyTorch: what one is (``op``; the rows are derived), how it runs (``run``), and two
ways to it, through PyTorch's dispatcher (``library``) and past it (``eager``). ``tensors`` and
``borrowed`` are what the functions of both packages call."""
