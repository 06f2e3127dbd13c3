"""Limits of the confined process. It sets them itself, before it reads a byte of the file."""

from __future__ import annotations

import os
import resource

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 20
VARIANT_BYTES = 64 << 20


def set_limits() -> None:
    """Limit memory, processor time and the size of written files; no core dumps. Raise OSError."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # At the first limit the kernel sends SIGXCPU, which names the reason; at the second one it kills.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (VARIANT_BYTES, VARIANT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def close_descriptors() -> None:
    """Allow no new descriptor after this: neither a file nor a socket can be opened."""
    # Importing pathlib would take time.
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    for descriptor in range(highest + 1):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open("/dev/null", os.O_RDONLY)  # takes the lowest free number, which is this
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
