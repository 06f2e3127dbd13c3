"""One file from its received bytes to its publication, or its refusal."""

from __future__ import annotations


def file_process(file_id: str) -> bool:
    """Publish or reject a file that was received. False: another process has it, or it needs nothing any more."""
    raise NotImplementedError
