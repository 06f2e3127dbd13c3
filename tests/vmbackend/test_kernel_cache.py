"""The compiled kernel comes from the user's cache, shared by all checkouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.guest import kernel
from vmbackend.guest.kernel_cache import cache_kernel, cached_kernel, user_cache


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel source, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "linux.tar.xz"
    path.write_bytes(b"source")
    monkeypatch.setattr(kernel, "SOURCE", path)
    return path


def cache_content(content: bytes, tmp_path: Path) -> Path:
    (tmp_path / "built").write_bytes(content)
    to = cached_kernel((kernel.CONFIG, kernel.SOURCE))
    cache_kernel(tmp_path / "built", to)
    return to


def test_a_cached_kernel_is_installed_and_not_compiled(source: Path, tmp_path: Path) -> None:
    cached = cache_content(b"kernel", tmp_path)
    for folder in ("one", "two"):
        assert kernel.build_kernel(tmp_path / folder, lambda *_: None).read_bytes() == b"kernel"
        own = kernel.custom_kernel(tmp_path / folder)
        assert own is not None
        assert own.vmlinux.read_bytes() == cached.read_bytes()


def test_the_cached_kernel_depends_on_source_and_configuration(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {cache_content(b"kernel", tmp_path)}
    source.write_bytes(b"newer source")
    names.add(cached_kernel((kernel.CONFIG, kernel.SOURCE)))
    monkeypatch.setattr(kernel, "CONFIG", tmp_path / "config")
    kernel.CONFIG.write_text("CONFIG_X=y\n")
    names.add(cached_kernel((kernel.CONFIG, kernel.SOURCE)))
    assert len(names) == 3
    with pytest.raises(BackendUnavailable):  # the source is not a valid archive, so unpacking fails
        kernel.build_kernel(tmp_path / "kit", lambda *_: None)


def test_a_kernel_is_cached_atomically(source: Path, tmp_path: Path) -> None:
    to = cache_content(b"first", tmp_path)
    cache_content(b"second", tmp_path)
    assert to.read_bytes() == b"second"
    assert list((user_cache() / "kernels").iterdir()) == [to]


def test_a_cache_that_cannot_be_written_is_no_error(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    cache_content(b"kernel", tmp_path)


def test_without_the_source_package_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "SOURCE", tmp_path / "none")
    with pytest.raises(BackendUnavailable, match="linux-source"):
        kernel.build_kernel(tmp_path / "kit", lambda *_: None)
