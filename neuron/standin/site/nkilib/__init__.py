"""trncheck's stand-in for the NKI Library: kernels of its own under the names that the kit looks for."""
