"""What may go wrong with an export and with the files of pages."""

from __future__ import annotations


class ExportLimit(Exception):
    """A limit of an export was passed: `limit_name` is a field of `ExportLimits`, `path` what passed it."""

    def __init__(self, limit_name: str, path: str) -> None:
        super().__init__(f"{limit_name} at {path!r}")
        self.limit_name = limit_name
        self.path = path


class ExportDamaged(Exception):
    """The stream is no whole tar archive; `sentence` says in which way."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class StoreError(Exception):
    """The files of a page are not as a caller expects, for example a release that does not exist."""


class NameTaken(StoreError):
    """The name leads to another page."""
