"""The lock of kit builds: only the platform can take it, and each wait for it has a deadline."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.guest import kernel, kit
from vmbackend.guest.kernel import build_kernel
from vmbackend.guest.kit import Kit, build_kit

Build = Callable[[Path, Callable[[int, str], None]], object]


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Builds that make nothing, and wait a short time for others."""
    monkeypatch.setattr(kit, "_build", lambda *_, **__: Kit(tmp_path, tmp_path, "1"))
    monkeypatch.setattr(kernel, "SOURCE", tmp_path)
    monkeypatch.setattr(kernel, "cached_kernel", lambda _: tmp_path / "not-cached")
    monkeypatch.setattr(kernel, "_compile", lambda *_: None)
    monkeypatch.setattr(kit, "BUILD_SECONDS", 0.3, raising=False)
    monkeypatch.setattr(kernel, "BUILD_TIMEOUT", 0.3)


@contextmanager
def lock_readable_files(folder: Path) -> Iterator[None]:
    """Lock every file that another user can open, as a machine's process could."""
    with ExitStack() as stack:
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_mode & 0o004:
                fcntl.flock(stack.enter_context(path.open()), fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("build", [build_kit, build_kernel])
def test_a_reader_of_the_kit_cannot_hold_up_a_build(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    build(folder, lambda *_: None)
    for old in (folder / ".lock", folder / "kernel/.lock"):  # of earlier versions
        old.parent.mkdir(exist_ok=True)
        old.touch()
        old.chmod(0o644)
    with lock_readable_files(folder):
        build(folder, lambda *_: None)


@pytest.mark.parametrize("build", [build_kit, build_kernel])
def test_a_build_that_waits_too_long_for_another_says_so(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kit"

    def build_inside(*_: Any, **__: Any) -> None:
        with pytest.raises(BackendUnavailable, match=r"Another build in .* did not end"):
            build(folder, lambda *_: None)
        raise BackendUnavailable("The outer build ends.")

    monkeypatch.setattr(kit, "_build", build_inside)
    monkeypatch.setattr(kernel, "_compile", build_inside)
    with pytest.raises(BackendUnavailable, match="The outer build ends"):
        build(folder, lambda *_: None)
