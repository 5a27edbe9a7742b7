"""The compiled call path: its C++, how that is compiled, and in wheels what was compiled for each version of PyTorch."""
