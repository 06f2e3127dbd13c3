"""The synchronous client is the asynchronous one without coroutines. It is not tracked: this module writes it into the
checkout (scripts/venv.sh, tests/environment.py) and into a wheel (hatch_build.py).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "microvm"
# Written by hand on both sides: what waits, and locks.
_BY_HAND = {Path("__init__.py"), Path("waiting.py")}
REPLACEMENTS = [
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bmicrovm\.aio\b", "microvm.sync"),
    (r"\bwebsockets\.asyncio\b", "websockets.sync"),
]


def synchronous_text(source: str) -> str:
    """The same module without coroutines."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    return source


def synchronous_modules(package: Path = PACKAGE) -> dict[Path, str]:
    """Path below `sync` -> text, of every module that is not written by hand."""
    sources = {path.relative_to(package / "aio"): path for path in (package / "aio").rglob("*.py")}
    return {name: synchronous_text(path.read_text()) for name, path in sources.items() if name not in _BY_HAND}


def write_synchronous_client(package: Path = PACKAGE) -> None:
    """Write what is missing or has changed, and remove modules whose source is gone. Safe beside another process that
    does the same: a file is replaced by its next version at once.
    """
    folder, modules = package / "sync", synchronous_modules(package)
    for path in folder.rglob("*.py"):
        if path.relative_to(folder) not in modules.keys() | _BY_HAND:
            path.unlink(missing_ok=True)
    for name, text in modules.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}")
            part.write_text(text)
            part.replace(path)


if __name__ == "__main__":
    write_synchronous_client()
