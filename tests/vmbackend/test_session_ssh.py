"""Switching SSH for users on and off through the fake session."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmbackend.driver import Boot, MachineSpec
from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.guest import SSH_CONNECTIONS_FILE, SSH_FILE, fake_sessions
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkK4b6RIRacrcHLXFlithFdjnjjmZr9KHrm56BAluEq me"
ADDRESS = GuestAddress("m", "10.0.0.2", 1, "")


def test_keys_are_set_replaced_and_removed(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.prepare(MachineSpec("m", "sha256:x", 1, 128, 64, "10.0.0.2", Boot("m")))
    driver.start("m")
    folder = tmp_path / "directories" / "m"
    pool = GuestPool(fake_sessions(tmp_path))
    try:
        pool.call(ADDRESS, lambda session: session.set_ssh(True, [KEY, KEY]))
        assert (folder / SSH_FILE).read_text() == f"{KEY}\n{KEY}\n"
        with pytest.raises(GuestCommandInvalid):
            pool.call(ADDRESS, lambda session: session.set_ssh(True, ["nonsense"]))
        assert pool.call(ADDRESS, lambda session: session.ssh_connections()) == 0
        (folder / SSH_CONNECTIONS_FILE).write_text("2")
        assert pool.call(ADDRESS, lambda session: session.ssh_connections()) == 2
        for _ in range(2):
            pool.call(ADDRESS, lambda session: session.set_ssh(False, []))
        assert not (folder / SSH_FILE).exists()
        driver.destroy("m")
        with pytest.raises(GuestUnreachable):
            pool.call(ADDRESS, lambda session: session.ssh_connections())
    finally:
        pool.close()
