"""Records of a PAX header: `<length> <key>=<value>\\n`, where the length counts the record itself."""

from __future__ import annotations

import re

from pages.releases.errors import ExportDamaged

_LENGTH = re.compile(rb"([0-9]{1,6}) ")


def pax_records(data: bytes) -> dict[str, str]:
    """Return records by key; if two have one key, the later one. Raise ExportDamaged.

    `data` is bounded by the caller.
    """
    records: dict[str, str] = {}
    position = 0
    while position < len(data) and data[position]:
        found = _LENGTH.match(data, position)
        end = position + int(found[1]) if found else 0
        if found is None or end > len(data) or end <= found.end() or data[end - 1 : end] != b"\n":
            raise ExportDamaged("An extended header of the archive is malformed.")
        key, equals, value = data[found.end() : end - 1].partition(b"=")
        if not equals:
            raise ExportDamaged("An extended header of the archive is malformed.")
        records[_text(key)] = _text(value)
        position = end
    return records


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
