"""Compiled kernels: arrays in, arrays of the caller out, input trusted."""
