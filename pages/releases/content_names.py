"""Detection of file names with a hash of the content, as bundlers make them: such a file never has another content."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"(?:^|[._-])([A-Za-z0-9]{8,64})(?=[._-]|$)")
# Base64url hashes may have - and _ in them; Vite's and Rollup's have eight characters and end the name.
_LAST_EIGHT = re.compile(r"[._-]([A-Za-z0-9_-]{8})$")
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{2,})+[0-9]?|[a-z]+|[A-Z]?[a-z]+")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_DATE = re.compile(r"(?:19|20)[0-9]{6}(?:[0-9]{4,6})?")
_PAGES = (".html", ".htm", ".txt", ".xml")


def name_has_content_hash(path: str) -> bool:
    """Return whether the last part of a path has a hash.

    Pages never count: old tabs ask only for files that pages load.
    """
    name = path.rpartition("/")[2]
    if name.endswith(_PAGES) or "." not in name:
        return False
    stem = name.removesuffix(".map").rpartition(".")[0]
    tokens = _TOKEN.findall(stem)
    last = _LAST_EIGHT.findall(stem)
    return any(_is_hash(token, whole=token == stem) for token in [*tokens, *last])


def _is_hash(token: str, *, whole: bool) -> bool:
    if _DATE.fullmatch(token) or _WORDS.fullmatch(token):
        return False
    if _HEX.fullmatch(token) and any(map(str.isdigit, token)):
        # Without a name in front only long hashes count: 12345678.js could also be a number.
        return len(token) >= (13 if whole else 8)
    if whole:
        return False
    digits = sum(map(str.isdigit, token))
    mixed = token != token.lower() and token != token.upper()
    if mixed:
        return digits > 0 or len(token) == 8
    # esbuild: eight of A-Z and 2-7. Base 36 of other bundlers has several digits.
    return (token.isupper() and len(token) == 8) or digits >= 2
