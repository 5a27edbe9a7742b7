"""The operators for PyTorch: what they are (``table``), how they run (``run``), and two ways to
them, through PyTorch's
dispatcher (``library``) and past it (``eager``)."""
