"""A server process that can open no more files: what it answers then needs none that was not open before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from supervise.instance import ROOT

# A first request loads what each needs; then the process can open nothing, and answers an error for the first time.
PROGRAM = """
import io, json, os, resource, sys
from config.wsgi import application

def get(path):
    seen = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "SERVER_NAME": "localhost", "SERVER_PORT": "80",
               "HTTP_HOST": "localhost", "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr,
               "wsgi.url_scheme": "http"}
    body = b"".join(application(environ, lambda status, headers: seen.append(status)))
    return seen[0], body

assert get("/docs")[0].startswith("200")
taken = [os.open(os.devnull, os.O_RDONLY)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, taken[0] + 1))
status, body = get("/there/is/no/such/route")
print(json.dumps([status, json.loads(body)["code"]]))
"""


def test_the_first_error_is_answered_without_a_free_descriptor(tmp_path: Path) -> None:
    settings = {
        "PLATFORM_STATE": str(tmp_path),
        "PLATFORM_VM_BACKEND": "fake",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    environment = {**os.environ, **settings, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == ["404 Not Found", "not_found"]
