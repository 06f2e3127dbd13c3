"""Archives of directories, by both sessions to guests."""

from __future__ import annotations

import io
import socket
import tarfile
from contextlib import closing
from typing import Any

import pytest

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound

from .test_guest_session import Guest, guest, helper, local

__all__ = ["guest", "helper", "local"]


def archive(guest: Guest, name: str = "") -> bytes:
    return b"".join(guest.pool.stream(guest.address, lambda session: session.archive(f"{guest.inside}/{name}"), 60))


def test_a_directory_is_archived_with_all_that_it_contains(guest: Guest):
    (guest.outside / "a/b").mkdir(parents=True)
    (guest.outside / "a/b/c").write_bytes(b"x" * 300_000)
    (guest.outside / "-rf name").write_text("odd")
    (guest.outside / "link").symlink_to("/etc/passwd")
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(guest.outside / "socket"))
        data = archive(guest)
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        entries = {entry.name.removeprefix("./"): entry for entry in found}
        assert set(entries) - {".", "socket"} == {"a", "a/b", "a/b/c", "-rf name", "link"}
        assert (entries["link"].issym(), entries["link"].linkname) == (True, "/etc/passwd")
        content = found.extractfile(entries["a/b/c"])
        assert content is not None
        assert content.read() == b"x" * 300_000


def test_what_is_no_directory_is_refused(guest: Guest):
    (guest.outside / "file").write_text("x")
    with pytest.raises(GuestPathInvalid):
        archive(guest, "file")
    with pytest.raises(GuestPathNotFound):
        archive(guest, "nothing")


def test_a_reader_may_stop_early(guest: Guest):
    with (guest.outside / "large").open("wb") as file:
        file.truncate(1 << 30)
    chunks: Any = guest.pool.stream(guest.address, lambda session: session.archive(f"{guest.inside}/"), 60)
    with closing(chunks):
        assert next(chunks)
    assert guest.run(["true"]).exit_code == 0
