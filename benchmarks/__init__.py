"""Benchmarks: every figure is a ratio between consumers of the same WAL, taken side by side in one run."""
