"""Executes NKI kernels on a CPU, with NumPy, and refuses what Trainium2 would refuse."""
