"""Writes the synchronous client from the asynchronous one: `python clients/python/generate.py`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "microvm"
REPLACEMENTS = [
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\(self\._transport\.call\((.*)\)\)\[", r"self._transport.call(\1)["),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\basyncio\b", "time"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bmicrovm\.aio\b", "microvm.sync"),
]


def synchronous(source: str) -> str:
    """The same module without coroutines."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    return source


def formatted(source: str, path: Path) -> str:
    """The text as the project's ruff sorts and formats it. Raises CalledProcessError where it is no Python."""
    for options in (["check", "--quiet", "--fix-only", "--select", "I"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(path), "-"]
        source = subprocess.run(command, input=source, text=True, check=True, capture_output=True).stdout
    return source


def modules() -> dict[Path, str]:
    """Each file of the synchronous client, with its text."""
    sources = [path for path in sorted((PACKAGE / "aio").glob("*.py")) if path.name != "__init__.py"]
    targets = {PACKAGE / "sync" / path.name: path.read_text() for path in sources}
    return {target: formatted(synchronous(source), target) for target, source in targets.items()}


if __name__ == "__main__":
    for target, text in modules().items():
        target.write_text(text)
