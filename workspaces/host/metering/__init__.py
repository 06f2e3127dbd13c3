"""Sampling machines every second, metering their use every tick, and compacting what was stored."""
