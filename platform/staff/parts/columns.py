"""Columns and values of the admin: badges of states, times, sizes, links. All of it is escaped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

EMPTY = "-"
SHORT = 24  # characters of a text that stays on one line
GOOD, BAD, BUSY, QUIET, WARNING = "good", "bad", "busy", "quiet", "warning"
# The states of all apps: a state that is not here is shown as quiet.
KINDS = {
    **dict.fromkeys(("running", "active", "succeeded", "delivered", "ready", "online", "agrees", "open", "done"), GOOD),
    **dict.fromkeys(("failed", "lost", "suspended", "expired", "rejected", "gone", "offline", "stalled"), BAD),
    **dict.fromkeys(("paused", "failing", "disabled", "revoked", "inactive", "draining", "unresponsive"), WARNING),
    **dict.fromkeys(("queued", "creating", "starting", "stopping", "restarting", "pausing", "resuming"), BUSY),
    **dict.fromkeys(("suspending", "waking", "reinstalling", "resizing", "restoring", "moving", "deleting"), BUSY),
    **dict.fromkeys(("pending", "processing"), BUSY),
    **dict.fromkeys(("uploading", "receiving", "deploying"), BUSY),
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DIRECTIONS = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
_STEPS = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def badge(text: object, kind: str = "", title: str = "") -> SafeString:
    """Return a coloured word; the colour follows from the word if no `kind` is given."""
    word = str(text or EMPTY)
    chosen = kind or KINDS.get(word, QUIET)
    return format_html('<span class="mvm-badge mvm-{}" title="{}">{}</span>', chosen, title, word)


def duration_text(seconds: float) -> str:
    """Return `45 s`, `3 min`, `2 d`: the largest unit of which there is a whole one."""
    whole = int(abs(seconds))
    for size, unit in _STEPS:
        if whole >= size:
            return f"{whole // size} {unit}"
    return "0 s"


def time_text(moment: datetime | None) -> SafeString | str:
    """Return `3 min ago` or `in 2 h`, with the exact time (UTC) on hover."""
    if moment is None:
        return EMPTY
    seconds = (timezone.now() - moment).total_seconds()
    text = f"in {duration_text(seconds)}" if seconds < -1 else f"{duration_text(seconds)} ago"
    exact = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact, text)


def bytes_text(size: int | None) -> str:
    """Return a number of bytes as `1.5 GiB`."""
    if size is None:
        return EMPTY
    amount, unit = float(size), 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount >= 100 or unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def mebibytes_text(size: int | None) -> str:
    return EMPTY if size is None else bytes_text(size << 20)


def credits_text(amount: Decimal | None) -> str:
    return EMPTY if amount is None else f"{amount:,.2f}"


def taken(begun: datetime, ended: datetime | None) -> str:
    """Return how long it took, until now if it has not ended."""
    return duration_text(((ended or timezone.now()) - begun) / timedelta(seconds=1))


def change_url(model: str, key: object) -> str:
    """Return the page of a row in the admin, by `app.model`; empty if there is none."""
    if not key:
        return ""
    try:
        return reverse(f"admin:{model.lower().replace('.', '_')}_change", args=[key])
    except NoReverseMatch:
        return ""


def list_url(model: str, **filters: str | int) -> str:
    """Return a list of the admin, filtered; empty if there is none."""
    try:
        url = reverse(f"admin:{model.lower().replace('.', '_')}_changelist")
    except NoReverseMatch:
        return ""
    return f"{url}?{urlencode(filters)}" if filters else url


def without_directions(text: str) -> str:
    """Return a text of a user's without the characters that turn the direction of what follows it, for a place that is
    no element of its own.
    """
    return text.translate(_DIRECTIONS)


def link(text: object, url: str, title: str = "") -> SafeString | str:
    if not url:
        return str(text or EMPTY)
    return format_html('<a class="mvm-link" href="{}" title="{}">{}</a>', url, title, text)


def row_link(row: Model | None, text: object = "") -> SafeString | str:
    """Return a link to a row's page. Users choose what rows are called: a long name is cut off, and is whole on
    hover.
    """
    if row is None:
        return EMPTY
    shown = str(text or row)
    return link(format_html("<bdi>{}</bdi>", shown), change_url(row._meta.label, row.pk), title=shown)


def shortened(text: str, length: int = 60) -> SafeString | str:
    """Return the beginning of a text, which may take several lines; all of it on hover."""
    if not text:
        return EMPTY
    if len(text) <= SHORT:
        return format_html('<span class="mvm-short">{}</span>', text)
    cut = text if len(text) <= length else f"{text[:length]}…"
    return format_html('<span class="mvm-text" title="{}">{}</span>', text, cut)


# Columns of lists


def _column(name: str, label: str, read: Callable[[Any], Any], ordering: str | None = None) -> Callable[[Any], Any]:
    def shown(row: Any) -> Any:
        return read(row)

    shown.__name__ = name.replace("__", "_")
    return admin.display(description=label, ordering=ordering)(shown)


def value_of(row: Any, path: str) -> Any:
    """Return the value at a path such as `workspace__status`; None if a part of it is."""
    for name in path.split("__"):
        if row is None:
            return None
        row = getattr(row, name)
    return row


def state_column(path: str, label: str = "", *, reason: str = "") -> Callable[[Any], Any]:
    """Return a badge; `reason` names a column with what is shown on hover."""

    def read(row: Any) -> SafeString:
        return badge(value_of(row, path), title=str(value_of(row, reason) or "") if reason else "")

    return _column(path, label or path.rpartition("__")[2].replace("_", " ").capitalize(), read, path)


def time_column(path: str, label: str = "") -> Callable[[Any], Any]:
    words = label or path.removesuffix("_at").replace("_", " ").capitalize()
    return _column(path, words, lambda row: time_text(value_of(row, path)), path)


def bytes_column(path: str, label: str = "") -> Callable[[Any], Any]:
    words = label or path.removesuffix("_bytes").replace("_", " ").capitalize()
    return _column(path, words, lambda row: bytes_text(value_of(row, path)), path)


def credits_column(path: str, label: str = "") -> Callable[[Any], Any]:
    return _column(
        path, label or path.replace("_", " ").capitalize(), lambda row: credits_text(value_of(row, path)), path
    )


def text_column(path: str, label: str = "", length: int = 60) -> Callable[[Any], Any]:
    words = label or path.replace("_", " ").capitalize()
    return _column(path, words, lambda row: shortened(str(value_of(row, path) or ""), length), path)


def link_column(path: str, label: str = "", *, text: str = "") -> Callable[[Any], Any]:
    """Return a link to the page of a row that the list's query joins in. `text`: its column that is shown, else its
    `str`.
    """

    def read(row: Any) -> SafeString | str:
        found = value_of(row, path)
        return row_link(found, value_of(found, text) if text else "")

    return _column(path, label or path.rpartition("__")[2].replace("_", " ").capitalize(), read, path)


def id_column(column: str, model: str, label: str = "") -> Callable[[Any], Any]:
    """Return a link by a plain id, of a row that may not exist any more."""
    words = label or column.removesuffix("_id").replace("_", " ").capitalize()

    def read(row: Any) -> SafeString | str:
        key = getattr(row, column)
        return link(key, change_url(model, key)) if key else EMPTY

    return _column(column, words, read, column)
