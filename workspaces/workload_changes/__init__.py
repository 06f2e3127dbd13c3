"""Workloads of one workspace, read and changed while it runs: saved first, then applied in the guest."""
