from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from vmbackend.driver import Boot
from vmbackend.errors import BackendUnavailable
from vmbackend.guest import cpio
from vmbackend.guest.bootconfig import GuestConfig, encode, generate_host_key, is_interactive_shell
from vmbackend.guest.kernel import check_config
from vmbackend.guest.kit import find_kit

CONFIG = GuestConfig(
    boot=Boot(hostname="one", env={"A": "b=c d", "EMPTY": ""}, user="dev"),
    address="10.0.0.5/20",
    gateway="10.0.0.1",
    dns=("10.0.0.1", "9.9.9.9"),
    host_key=b"\0\x01key",
    authorized_key="ssh-ed25519 AAAA control\n",
)


def records(boot: Boot = CONFIG.boot) -> list[str]:
    encoded = encode(replace(CONFIG, boot=boot))
    assert encoded.endswith(b"\0")
    return encoded[:-1].decode("utf-8", "surrogateescape").split("\0")


def test_every_value_becomes_a_record_and_lists_repeat_their_key() -> None:
    assert {
        "hostname=one", "address=10.0.0.5/20", "gateway=10.0.0.1", "dns=10.0.0.1", "dns=9.9.9.9",
        "host_key=00016b6579", "authorized_key=ssh-ed25519 AAAA control", "env=A=b=c d", "env=EMPTY=",
        "user=dev", "cwd=/",
    } == set(records())  # fmt: skip


def test_a_main_process_wins_over_the_entrypoint() -> None:
    lines = records(Boot(hostname="x", cmd=("run", "", "a b"), entrypoint=("serve",)))
    assert [line for line in lines if line.startswith(("cmd", "entrypoint"))] == [
        "cmd=run",
        "cmd=",
        "cmd=a b",
    ]


def test_an_entrypoint_is_passed_unless_it_is_a_bare_shell() -> None:
    assert "entrypoint=serve" in records(Boot(hostname="x", entrypoint=("serve", "-v")))
    assert not any(line.startswith("entrypoint") for line in records(Boot(hostname="x", entrypoint=("/bin/bash",))))
    assert not is_interactive_shell(("bash", "-c", "x"))


def test_bytes_that_are_no_text_come_through() -> None:
    boot = Boot(hostname="x", env={"RAW": b"\xff".decode("utf-8", "surrogateescape")})
    assert b"env=RAW=\xff\0" in encode(replace(CONFIG, boot=boot))


@pytest.mark.parametrize(
    "boot",
    [
        Boot(hostname="a\0b"),
        Boot(hostname="x", env={"A": "\0"}),
        Boot(hostname="x", env={"A=B": "c"}),
        Boot(hostname="x", env={"": "c"}),
        Boot(hostname="x", cmd=("a\0",)),
        Boot(hostname="x", cmd=()),
        Boot(hostname="x", cmd=("",)),
    ],
)
def test_what_cannot_be_encoded_is_refused(boot: Boot) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the contract names no words
        encode(replace(CONFIG, boot=boot))


def test_a_host_key_is_private_and_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "key"
    line = generate_host_key(path)
    assert re.match(r"ssh-ed25519 AAAA\S+", line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert generate_host_key(path) == line
    assert generate_host_key(tmp_path / "other") != line


def test_a_broken_host_key_is_an_error_of_the_backend(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"no key")
    with pytest.raises(BackendUnavailable):
        generate_host_key(tmp_path / "key")


def test_without_a_kit_the_command_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"manage\.py guest_kit"):
        find_kit(tmp_path)


def test_an_archive_is_the_same_whatever_the_order() -> None:
    nodes = [cpio.regular("a/b/file", b"abc"), cpio.symlink("link", "a"), cpio.directory("a", 0o700)]
    archive = cpio.archive(nodes)
    assert archive == cpio.archive(reversed(nodes))
    assert archive.index(b"\0a/b\0"[1:]) < archive.index(b"a/b/file")


def test_an_option_that_the_kernel_dropped_is_named() -> None:
    check_config("CONFIG_A=y\nCONFIG_GONE=y\n", "CONFIG_A=y\n")
    with pytest.raises(BackendUnavailable, match="CONFIG_A"):
        check_config("CONFIG_A=y\n", "# CONFIG_A is not set\n")
