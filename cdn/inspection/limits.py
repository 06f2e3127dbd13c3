"""What the confined process may use; it sets these limits itself, before it reads a byte of the file."""

from __future__ import annotations

import os
import resource

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 20
VARIANT_BYTES = 64 << 20


def set_limits() -> None:
    """Memory, processor time, size of written files; no core dumps. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # At the second one the kernel kills; at the first it says why.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (VARIANT_BYTES, VARIANT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def close_descriptors() -> None:
    """No descriptor is made after this: neither a file nor a socket can be opened."""
    # pathlib would take time to be imported.
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    for descriptor in range(highest + 1):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open("/dev/null", os.O_RDONLY)  # the lowest free one, which is this
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
