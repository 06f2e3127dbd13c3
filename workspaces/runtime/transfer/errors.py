"""Errors of archives that are sent to a machine. `details.files_extracted`: files that are there nevertheless."""

from __future__ import annotations

from common.errors import DomainError


class ArchiveInvalid(DomainError):
    code = "archive_invalid"
    status = 400
    message = "The body is not a tar.gz that can be unpacked there."
