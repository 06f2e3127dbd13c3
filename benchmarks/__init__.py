"""Benchmarks: each measures the platform beside a baseline in the same run and prints a ratio. None asserts a time.

They need a running instance (`make up`) and read its STATE: `make bench ARGS="boot --count 10"`.
"""
