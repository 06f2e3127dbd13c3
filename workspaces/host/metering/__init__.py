"""Sampling machines every second, metering their use every tick, and compacting stored usage."""
