"""A WSGI application that notes which process loads it, in the file that LOADED names; it answers the process's id."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

with Path(os.environ["LOADED"]).open("a") as _file:
    _file.write(f"{os.getpid()}\n")


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
