"""Errors of the file routes of a sandbox."""

from __future__ import annotations

from common.errors import Conflict


class FileChanged(Conflict):
    """Others changed the file again and again while it was edited; nothing was written."""

    code = "file_changed"
    message = "The file is being changed by others; nothing was changed. Try once more."


class EditNotApplicable(Conflict):
    """A text of an edit is not in the file, or more than once; nothing was written. `details.edit`: which, from 0."""

    code = "edit_not_applicable"
    message = "The text of an edit is not in the file exactly once; nothing was changed."
