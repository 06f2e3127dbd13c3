"""The synchronous client is the asynchronous one without coroutines."""

from __future__ import annotations

import re

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
    """The same module without coroutines, to be formatted."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    return source
