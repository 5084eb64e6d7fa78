"""NKI kernels, the torch operators that wrap them, their catalogue, and a CPU simulator of NKI."""
