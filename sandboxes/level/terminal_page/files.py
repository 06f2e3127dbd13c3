"""The files of the terminal page: our own, and those of npm packages that `make setup` brings (npm.lock)."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from common.errors import DomainError

OWN = Path(__file__).parent / "files"
PAGE = "page.html"
NPM = Path(sys.prefix) / "share" / "npm"
# Files of npm packages, with the package's folder.
BROUGHT = ("xterm/xterm.mjs", "xterm/xterm.css", "addon-fit/addon-fit.mjs", "addon-unicode11/addon-unicode11.mjs")
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}


class PageNotInstalled(DomainError):
    """The files of npm packages could not be fetched when the platform was set up."""

    code = "page_not_installed"
    status = 503
    message = "The terminal page is not installed here: `make setup` could not fetch its files."


@dataclass(frozen=True, slots=True)
class PageFiles:
    """`version` is a hash of all of them: below it a file never changes."""

    version: str
    page: Template
    files: dict[str, bytes]


@cache
def page_files() -> PageFiles:
    """Read once; tried again if that failed. Raise PageNotInstalled."""
    try:
        files = {Path(name).name: (NPM / name).read_bytes() for name in BROUGHT}
    except FileNotFoundError as error:
        raise PageNotInstalled from error
    files |= {path.name: path.read_bytes() for path in OWN.iterdir() if path.suffix in TYPES}
    page = (OWN / PAGE).read_text()
    known = hashlib.sha256(page.encode())
    for name, data in sorted(files.items()):
        known.update(f"{name} {len(data)} ".encode() + data)
    return PageFiles(known.hexdigest()[:16], Template(page), files)
