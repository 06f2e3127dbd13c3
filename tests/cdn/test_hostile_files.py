"""Hostile files: each has its documented answer; nothing is fetched, no other file is read, no limit is exceeded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdn.doctor import confinement_line
from cdn.inspection.limits import CPU_SECONDS, MEMORY_BYTES
from cdn.inspection.messages import Findings, InspectionOrder
from cdn.media import confinement, inspections, runner
from cdn.media.confinement import Level, inspection_confined, levels
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.hostile_run import hostile_run
from tests.cdn.received import processed_file
from tests.run_extent import campaign_after
from vmbackend.errors import BackendUnavailable

SMALL = {"small": {"width": 64, "height": 64, "format": "webp"}}
LEVELS = list(levels())


class Listener:
    """Counts connections on loopback."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        with suppress(OSError):
            while True:
                self._socket.accept()[0].close()
                self.requests += 1

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


# name -> the file (given a URL), its type, what is said of it, what is said where variants are wanted
FILES: dict[str, tuple[Callable[[str], bytes], str, str, str]] = {
    "a PNG of 30,000 x 30,000": (lambda url: hostile.huge_png(), "image/png", "", "pixels"),
    "a PNG with a false header": (lambda url: hostile.false_png(), "image/png", "", "variants"),
    "a PNG whose text is 256 MiB": (lambda url: hostile.inflating_png(), "image/png", "", ""),
    "a GIF of 10,000 frames": (lambda url: hostile.long_gif(), "image/gif", "", "frames"),
    "a zip bomb": (lambda url: hostile.zip_bomb(), "application/zip", "", "variants"),
    "a GIF that is a script and an archive": (lambda url: hostile.polyglot(), "image/gif", "", ""),
    "HTML named .png": (lambda url: f"<html><img src={url}/a>".encode(), "text/html", "", "variants"),
    "SVG with script and links": (
        lambda url: hostile.SCRIPT_SVG.replace("{url}", url).encode(), "image/svg+xml", "", "variants",
    ),
    "SVG with an entity bomb": (lambda url: hostile.entity_bomb_svg(), "image/svg+xml", "", "variants"),
    "a playlist named .mp4": (
        lambda url: hostile.PLAYLIST.replace("{url}", url).encode(), "text/plain", "", "variants",
    ),
    "a list of other files": (
        lambda url: b"ffconcat version 1.0\nfile '/etc/passwd'\n", "text/plain", "", "variants",
    ),
    "a movie with a playlist behind it": (
        lambda url: hostile.movie() + hostile.PLAYLIST.replace("{url}", url).encode(), "video/mp4", "", "variants",
    ),
    "a movie whose data lie at a URL": (
        lambda url: hostile.movie_elsewhere(url), "video/mp4", "", "variants",
    ),
}  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", FILES)
def test_each_hostile_file_has_its_answer_and_fetches_nothing(api: Caller, listener: Listener, name: str) -> None:
    make, content_type, plain, wanted = FILES[name]
    data = make(listener.url)
    for expected, variants in ((plain, {}), (wanted, SMALL)):
        file = processed_file(api.account, data, "innocent.png", content_type="image/png", variants=variants)
        assert file.status == ("rejected" if expected else "active")
        if expected:
            assert (file.error["code"], file.error["details"]["rule"]) == ("cdn_policy_violation", expected)
        else:
            assert file.content_type == content_type
    assert listener.requests == 0


@pytest.mark.parametrize("name", campaign_after(3, FILES))
def test_no_process_exceeds_its_limits(tmp_path: Path, listener: Listener, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILES[name][0](listener.url))
    run = hostile_run(path)
    # The libraries alone take more than that: it was the confined process that was measured.
    assert 20 << 20 < run.memory_bytes < 200 << 20
    assert 0.02 < run.cpu_seconds < 5
    assert listener.requests == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_wants_more_memory_or_time_ends(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = confined_code(level, monkeypatch, f"data = bytearray({MEMORY_BYTES})\nprint('taken')")
    assert "taken" not in memory
    monkeypatch.setattr(runner, "SECONDS", 60.0)
    short = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nprint('ready', flush=True)\nwhile True: pass"
    )
    assert run_code(level, monkeypatch, short).reason == "resources"
    assert CPU_SECONDS == 20


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_does_not_end_is_killed(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SECONDS", 0.5)
    for code in ("import time; print('ready', flush=True); time.sleep(60)", "while True: print('x' * 1000)"):
        assert run_code(level, monkeypatch, code).reason == "resources"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "code",
    ["", "print('nonsense')", "raise SystemExit(3)"],
)
def test_a_process_that_did_not_begin_says_nothing_of_the_file(
    level: Level, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(runner.InspectionUnavailable):
        run_code(level, monkeypatch, code)


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_crashes_at_a_file_says_that_it_is_damaged(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    assert run_code(level, monkeypatch, crash).reason == "damaged"


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_the_host_kills_says_nothing_of_the_file(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = "import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(runner.InspectionKilled):
        run_code(level, monkeypatch, killed)


ATTEMPTS = """
import os, socket, sys
def attempt(name, function):
    try:
        function()
        print(name)
    except Exception as error:
        print("refused", name, type(error).__name__)
def connect():
    socket.create_connection(("127.0.0.1", {port}), timeout=2).close()
attempt("connect", connect)
attempt("read", lambda: open({secret!r}).read())
attempt("write", lambda: open({target!r}, "w"))
attempt("state", lambda: os.listdir({state!r}))
attempt("signal", lambda: os.kill({parent}, 0))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_what_code_inside_reaches(
    level: Level, tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that a hostile file brought to run, before and after no descriptor can be made."""
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("secret")
    code = ATTEMPTS.format(
        port=listener.url.rsplit(":", 1)[1], secret=str(secret), target=str(target), state=str(tmp_path),
        parent=os.getpid(),
    )  # fmt: skip
    closed = (
        f"import socket, encodings.idna\nfrom cdn.inspection.limits import *\nset_limits(); close_descriptors()\n{code}"
    )
    assert set(allowed(confined_code(level, monkeypatch, closed))) <= {"signal"}
    open_level = {Level.OWN_USER: [], Level.NO_NETWORK: ["read", "write", "state", "signal"]}
    if level in open_level:
        assert allowed(confined_code(level, monkeypatch, code)) == open_level[level]
        assert listener.requests == 0


def allowed(output: str) -> list[str]:
    lines = output.splitlines()
    assert len(lines) == 5, output
    return [line for line in lines if not line.startswith("refused")]


def confined_code(level: Level, monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    """What code prints in place of the inspection."""
    _replace(monkeypatch, code)
    with inspection_confined(level, "") as confined:
        ended = subprocess.run(
            confined.command, env=confined.environment, pass_fds=confined.descriptors, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=60, cwd="/",
        )  # fmt: skip
    return ended.stdout


def run_code(level: Level, monkeypatch: pytest.MonkeyPatch, code: str) -> Findings:
    """The answer where other code runs in place of the inspection."""
    _replace(monkeypatch, code)
    file = os.memfd_create("file")
    try:
        return runner.execute_inspection(level, file, InspectionOrder("image/png"), (), lambda: None)
    finally:
        os.close(file)


def _replace(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    limited = f"import cdn.inspection.limits as limits\nlimits.set_limits() if {'bytearray' in code} else None\n{code}"
    python = str(Path(sys.executable).resolve())
    monkeypatch.setattr(confinement, "_argv", lambda order: [python, "-S", "-s", "-P", "-c", limited])


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_looks_at_a_picture(level: Level) -> None:
    assert inspections.is_answering(level)


def test_the_strictest_level_that_answers_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspections.LevelFound().level() is LEVELS[0]
    argv: Any = confinement._argv

    def refuse(*_: Any) -> None:
        raise BackendUnavailable("the host cannot")

    monkeypatch.setattr(confinement, "confined_command", refuse)
    assert inspections.LevelFound().level() is LEVELS[1]
    monkeypatch.setattr(confinement, "_argv", lambda order: ["/bin/false", *argv(order)])
    with pytest.raises(BackendUnavailable):
        inspections.LevelFound().level()


def test_a_level_that_failed_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, True])
    monkeypatch.setattr(inspections, "levels", lambda: iter(Level))
    monkeypatch.setattr(inspections, "is_answering", lambda level: next(answers))
    found = inspections.LevelFound()
    assert found.level() is found.level() is Level.NO_NETWORK
    monkeypatch.setattr(inspections.time, "monotonic", lambda: found._retry_at)
    assert found.level() is found.level() is Level.OWN_USER


def test_the_doctor_says_how_strictly_files_are_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspections.LevelFound()
    _, strict, message, fix = confinement_line(found)
    assert (strict, fix == "") == ((LEVELS[0] is Level.OWN_USER),) * 2
    assert found.level().value in message
    monkeypatch.setattr(found, "_level", Level.LIMITS)
    _, strict, message, fix = confinement_line(found)
    assert (strict, "by its own limits only" in message, "root" in fix) == (False, True, True)
