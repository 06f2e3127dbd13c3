"""A SQLite database with all migrations, made once for a state of the code: each instance of the tests begins with a
copy, as migrating an empty one takes 4 s of a processor.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from supervise.instance import ROOT
from tests.cache import CACHE, remove_unused

DATABASES = CACHE / "databases"


def put_migrated_database(target: Path) -> None:
    """Put a copy at `target` unless there is a database. Processes that want one at once wait for the first.

    Raises CalledProcessError where it cannot be migrated.
    """
    if target.exists():
        return
    DATABASES.mkdir(parents=True, exist_ok=True)
    kept = DATABASES / f"{_state_of_code()}.sqlite3"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _migrate(kept)
        os.utime(kept)
        os.utime(kept.with_suffix(".lock"))
        target.touch(mode=0o600)
        shutil.copyfile(kept, target)
    remove_unused(DATABASES)


def _migrate(kept: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="migrating-", dir=kept.parent) as state:
        made = Path(state) / "db.sqlite3"
        own = {"PLATFORM_STATE": state, "PLATFORM_DATABASE_URL": f"sqlite:///{made}", "PLATFORM_SECRET_KEY": "x" * 50}
        command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--no-input", "--verbosity", "0"]
        subprocess.run(command, env={**os.environ, **own}, cwd=ROOT, check=True)
        # What is still in the log of writes beside it goes into the file when its last connection closes.
        assert not made.with_name("db.sqlite3-wal").exists()
        made.replace(kept)


def _state_of_code() -> str:
    """A hash of the packages and of all code but that of the tests: migrations use some of both."""
    digest = hashlib.sha256()
    for path in (*sorted(_code()), ROOT / "requirements.lock"):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _code() -> Iterator[Path]:
    for settings in ROOT.glob("*/apps.py"):
        yield from settings.parent.rglob("*.py")
    yield from (ROOT / "platform").rglob("*.py")
