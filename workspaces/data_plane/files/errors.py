"""Errors of files inside a machine."""

from __future__ import annotations

from common.errors import Conflict


class FileChanged(Conflict):
    """The error that others changed the file again and again while it was edited; nothing was written."""

    code = "file_changed"
    message = "Other programs keep changing the file; nothing was edited. Try again."


class EditNotApplicable(Conflict):
    """A text of an edit is not in the file, or more than once; nothing was written. `details.edit`: which, from 0."""

    code = "edit_not_applicable"
    message = "The text of an edit is not in the file exactly once; nothing was changed."
