"""Expert computation of a mixture of experts by NKI kernels."""
