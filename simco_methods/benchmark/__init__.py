"""Benchmarks: both sides of each comparison in one run, in turns, with the ratio and its spread."""
