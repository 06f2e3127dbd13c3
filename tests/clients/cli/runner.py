"""Calls of `ws` in this process, and as a process under a pseudo-terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from microvm.cli.app import make_app

SECONDS = 120.0
SOURCES = Path(__file__).parents[3] / "clients/python/src"
PROGRAM = [sys.executable, "-c", "from microvm.cli.entry import main; main()"]


@dataclass
class Ws:
    """`ws` with its settings in a folder of the test. `variables`: MICROVM_* of its environment."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MICROVM_")}
        return {
            **kept,
            "MICROVM_CONFIG_DIR": str(self.folder),
            "PYTHONPATH": str(SOURCES),
            "TERM": "xterm",
            **self.variables,
        }

    def run(self, *words: str | Path, stdin: bytes | str | None = None) -> Result:
        environment: dict[str, Any] = {name: None for name in os.environ if name.startswith("MICROVM_")}
        environment |= {"MICROVM_CONFIG_DIR": str(self.folder), "NO_COLOR": "1", "COLUMNS": "300", **self.variables}
        return CliRunner().invoke(make_app(), [str(word) for word in words], input=stdin, env=environment)

    def output(self, *words: str | Path, stdin: bytes | str | None = None) -> str:
        """What a call that succeeds prints to stdout."""
        found = self.run(*words, stdin=stdin)
        assert found.exit_code == 0, (words, found.exit_code, found.output, found.exception)
        return found.stdout

    def json(self, *words: str | Path) -> Any:
        return json.loads(self.output(*words, "--json"))

    def fails(self, code: int, *words: str | Path, stdin: bytes | str | None = None) -> str:
        """What a call that fails with this code says on stderr; never a traceback."""
        found = self.run(*words, stdin=stdin)
        assert found.exit_code == code, (words, found.exit_code, found.output, found.exception)
        assert "Traceback" not in found.output
        return found.stderr

    def process(self, *words: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """A process of its own."""
        command = [*PROGRAM, *map(str, words)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, **{**pipes, **options})


class TerminalProcess:
    """A process in a pseudo-terminal of its own, as a user has it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], size: tuple[int, int] = (100, 30)
    ) -> None:
        self.outer, inner = pty.openpty()
        self._inner = inner
        self.resize(*size, tell=False)
        self.settings = termios.tcgetattr(inner)
        self.process = subprocess.Popen(
            ["setsid", "-c", *command], stdin=inner, stdout=inner, stderr=inner, env=dict(environment)
        )
        self.seen = bytearray()

    def __enter__(self) -> TerminalProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.outer)
        os.close(self._inner)

    def resize(self, cols: int, rows: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if tell:
            os.kill(self.process.pid, signal.SIGWINCH)

    def write(self, text: str) -> None:
        os.write(self.outer, text.encode())

    def interrupt(self, seconds: float = SECONDS) -> None:
        """Ctrl-C until the process ends: one that comes right before the process reads is not seen by Python."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.write("\x03")
            again = time.monotonic() + 3
            while self.process.poll() is None and time.monotonic() < again:
                self._read(0.05)

    def read_until(self, wanted: str, seconds: float = SECONDS) -> str:
        """What came so far, once it has the wanted text; what comes later is looked for from there."""
        until = time.monotonic() + seconds
        while (place := self.seen.find(wanted.encode())) < 0:
            assert time.monotonic() < until, f"{wanted!r} did not come: {bytes(self.seen)!r}"
            self._read(0.1)
        found = bytes(self.seen[: place + len(wanted.encode())])
        del self.seen[: len(found)]
        return found.decode(errors="replace")

    def wait(self, seconds: float = SECONDS) -> int:
        """Its exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end: {bytes(self.seen)!r}"
            self._read(0.05)
        return int(self.process.returncode)

    def is_restored(self) -> bool:
        """Whether the terminal is as it was before the process began."""
        return termios.tcgetattr(self._inner) == self.settings

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._inner)[3] & termios.ICANON

    def _read(self, seconds: float) -> None:
        if select.select([self.outer], [], [], seconds)[0]:
            self.seen += os.read(self.outer, 65536)
