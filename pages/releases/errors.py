"""Errors of an export and of the files of pages."""

from __future__ import annotations


class ExportLimit(Exception):
    """Error of a limit that an export passed.

    `limit_name` is a field of `ExportLimits`; `path` is where it was passed.
    """

    def __init__(self, limit_name: str, path: str) -> None:
        super().__init__(f"{limit_name} at {path!r}")
        self.limit_name = limit_name
        self.path = path


class ExportDamaged(Exception):
    """Error of a stream that is not a whole tar archive; `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class StoreError(Exception):
    """Error of files that are not as a caller expects, for example a release that does not exist."""


class NameTaken(StoreError):
    """Error of a name that leads to another page."""
