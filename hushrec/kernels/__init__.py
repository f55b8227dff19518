"""Numerical kernels: arrays in, arrays out, compiled by numba when a kernel is first called.

They draw no noise, only initial values from a seed. They know nothing of privacy, and give the same bits for
any number of threads.
"""
