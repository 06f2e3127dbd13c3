"""What a session does in a machine whose kit is that of an earlier release, which had fewer commands of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import LocalGuest
from tests.vmbackend.test_guest_session import Guest, helper, local, ssh_pool
from vmbackend.errors import GuestCommandInvalid, GuestKitOutdated

__all__ = ["helper", "local"]
pytestmark = pytest.mark.host
# As `src/main.c` of any release refuses a name that it does not have.
EARLIER = """#!/bin/sh
case "$1" in
    attributes | list | locked | walk | workloads) echo "guest: no such applet: $1" >&2; exit 127 ;;
    *) exec {helper} "$@" ;;
esac
"""


@pytest.fixture
def guest(local: LocalGuest, tmp_path: Path) -> Iterator[Guest]:
    earlier = tmp_path / "guest"
    earlier.write_text(EARLIER.format(helper=local.kit.helper))
    earlier.chmod(0o755)
    local.kit = replace(local.kit, helper=str(earlier))
    pool = ssh_pool(local)
    yield Guest(pool, local.address, str(local.root), local.root)
    pool.close()


def test_a_file_is_replaced_without_a_comparison(guest: Guest) -> None:
    """As the kit cannot exclude other writers: those of before did neither."""
    place = guest.outside / "file"
    place.write_bytes(b"one")
    assert guest.write("file", b"two", expected=hashlib.sha256(b"one").hexdigest()) == 3
    assert place.read_bytes() == b"two"
    place.chmod(0o600)
    assert guest.write("file", b"three") == 5
    assert (place.read_bytes(), place.stat().st_mode & 0o7777) == (b"three", 0o600)
    assert [each.name for each in guest.outside.iterdir()] == ["file"], "no partial file is left"


def test_what_the_kit_cannot_do_is_said_to_need_a_restart(guest: Guest) -> None:
    with pytest.raises(GuestKitOutdated, match="restart"):
        guest.names()
    with pytest.raises(GuestKitOutdated, match="restart"):
        guest.call(lambda session: session.walk(guest.inside, depth=2, limit=10, ignore=()))
    with pytest.raises(GuestKitOutdated, match="restart"):
        guest.call(lambda session: session.kit_helper("workloads list", b""))


def test_a_command_that_is_not_there_is_no_fault_of_the_kit(guest: Guest) -> None:
    with pytest.raises(GuestCommandInvalid):
        guest.run(["no-such-program"])
