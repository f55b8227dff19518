"""Every method of the library at its true epsilon, on every data set: ``python -m benchmarks.frontier``."""
