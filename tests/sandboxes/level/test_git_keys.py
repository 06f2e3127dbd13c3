"""SSH keys of a call of git: an agent on the host signs logins to the remote, and the key does not leave the host."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from sandboxes.level.git import exchange
from sandboxes.level.git.addresses import Remote
from sandboxes.level.git.agent import Key, NotAKey, read_key
from tests.sandboxes.level.calls import SandboxCaller
from tests.sandboxes.level.test_git import REPO, commit, git, push_change, remote
from tests.sandboxes.level.test_git_credentials import box
from tests.vmbackend.local_dropbear import LocalGuest, missing_requirement

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason=""),
]
__all__ = ["box", "remote"]

REMOTE = Remote("ssh", "h", 22, "git")
FAILURE = b"\x05"


@pytest.fixture
def server(hold_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalGuest]:
    """An SSH server, for root with its key. What ssh learns of it does not stay on this host."""
    folder = tmp_path / "server"
    folder.mkdir()
    monkeypatch.setattr(exchange, "SSH_COMMAND", f"{exchange.SSH_COMMAND} -o UserKnownHostsFile={tmp_path}/known")
    made = LocalGuest(folder, hold_program)
    yield made
    made.stop()


def auth_of(key: str) -> dict[str, str]:
    return {"type": "ssh", "sshKey": key}


@pytest.mark.host
def test_a_private_repository_is_cloned_pulled_and_pushed_and_the_key_stays_on_the_host(
    box: SandboxCaller, server: LocalGuest, remote: Path, disk: Path
) -> None:
    key = server.private_key.read_text()
    auth = auth_of(key)
    url = f"ssh://root@127.0.0.1:{server.port}{remote}"
    box.post("git/clone", {"url": url, "targetDir": "/w/repo", "auth": auth})
    theirs = push_change(remote, "two\n")
    assert box.post("git/pull", {**REPO, "auth": auth})["commit"] == theirs
    made = commit(box, disk, "b", "b\n")
    assert box.post("git/push", {**REPO, "auth": auth})["commit"] == made["commit"]
    assert git(remote, "rev-parse", "main") == made["commit"]
    secret = key.splitlines()[2].encode()
    assert not [path for path in disk.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert not list(Path("/dev/shm").glob(".ask-*"))


@pytest.mark.host
def test_another_key_and_another_host_are_told_apart(
    box: SandboxCaller, server: LocalGuest, remote: Path, tmp_path: Path
) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    body = {"url": f"ssh://root@127.0.0.1:{server.port}{remote}", "targetDir": "/w/repo"}
    assert box.refused("git/clone", {**body, "auth": auth_of(other)})[:2] == (400, "git_authentication_failed")
    known = tmp_path / "known"
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    known.write_text(f"[127.0.0.1]:{server.port} {stranger}")
    auth = auth_of(server.private_key.read_text())
    assert box.refused("git/clone", {**body, "auth": auth})[:2] == (400, "git_authentication_failed")


def test_an_image_without_ssh_is_told_apart(box: SandboxCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SSH_COMMAND", exchange.SSH_COMMAND.replace("ssh ", "/none/ssh ", 1))
    auth = auth_of(asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
    body = {"url": "git@127.0.0.1:x", "targetDir": "/w/repo", "auth": auth}
    assert box.refused("git/clone", body)[:2] == (409, "git_ssh_not_available")


@pytest.mark.parametrize("url", ["https://h/x", "/x", "git://h/x"])
def test_a_key_is_for_ssh_only(box: SandboxCaller, url: str) -> None:
    auth = auth_of(asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
    status, code, details = box.refused("git/clone", {"url": url, "targetDir": "/w/x", "auth": auth})
    assert (status, code, list(details)) == (400, "validation_error", ["auth"])


def locked_key(folder: Path) -> str:
    path = folder / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", path], check=True)
    return path.read_text()


def test_what_is_no_key_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    rsa = asyncssh.generate_private_key("ssh-rsa", key_size=1024).export_private_key().decode()
    dsa = asyncssh.generate_private_key("ssh-ed448").export_private_key().decode()
    public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    broken = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
    for text in (locked_key(tmp_path), rsa, dsa, public, broken, "x", "-----BEGIN RSA PRIVATE KEY-----\n"):
        with pytest.raises(NotAKey) as refusal:
            read_key(text)
        assert len(str(refusal.value)) < 60


@pytest.mark.parametrize("kind", ["pkcs1-pem", "pkcs8-pem", "openssh"])
def test_keys_are_read_in_the_usual_formats(kind: str) -> None:
    key = asyncssh.generate_private_key("ssh-rsa", key_size=2048)
    made = read_key(key.export_private_key(kind).decode().strip())
    assert made.key.public_data == key.public_data
    assert "PRIVATE" not in repr(made)


def text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def login(signer: Key, **changes: bytes) -> bytes:
    fields = {
        "session": b"s" * 32, "user": b"git", "service": b"ssh-connection", "method": b"publickey",
        "algorithm": signer.key.algorithm, "key": signer.key.public_data, **changes,
    }  # fmt: skip
    start = text(fields["session"]) + b"\x32" + text(fields["user"]) + text(fields["service"])
    return start + text(fields["method"]) + b"\x01" + text(fields["algorithm"]) + text(fields["key"])


def asked(key: Key, data: bytes, flags: int = 0, blob: bytes | None = None, kind: int = 13) -> bytes:
    blob = key.key.public_data if blob is None else blob
    return asyncio.run(key.answer(bytes([kind]) + text(blob) + text(data) + flags.to_bytes(4, "big"), REMOTE))


def test_a_login_is_signed_and_nothing_else() -> None:
    key = read_key(asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
    assert asyncio.run(key.answer(b"\x0b", REMOTE)) == b"\x0c\0\0\0\1" + text(key.key.public_data) + text(b"")
    data = login(key)
    said = asked(key, data)
    assert said[:1] == b"\x0e"
    assert key.key.convert_to_public().verify(data, said[5:])
    hostbound = login(key, method=b"publickey-hostbound-v00@openssh.com") + text(b"its key")
    assert asked(key, hostbound)[:1] == b"\x0e"
    signature = b"SSHSIG" + text(b"git") + text(b"") + text(b"sha512") + text(b"h" * 64)
    refused: list[bytes] = [
        b"", b"x", signature, data[:-1], data + b"x", login(key, user=b"root"), login(key, service=b"ssh-userauth"),
        login(key, method=b"hostbased"), login(key, key=b"other"), login(key, algorithm=b"ssh-rsa"),
        hostbound + text(b""),
    ]  # fmt: skip
    assert [asked(key, each) for each in refused] == [FAILURE] * len(refused)
    assert asked(key, data, blob=b"other") == FAILURE
    assert asked(key, data, kind=17) == FAILURE
    for question in (b"", b"\x0d", b"\x0d\xff\xff\xff\xff", b"\xf0Password for 'ssh://h': ", os.urandom(8192)):
        assert asyncio.run(key.answer(question, REMOTE)) == FAILURE


@pytest.mark.parametrize(("flags", "algorithm"), [(2, b"rsa-sha2-256"), (4, b"rsa-sha2-512")])
def test_rsa_keys_sign_with_sha2_only(flags: int, algorithm: bytes) -> None:
    key = read_key(asyncssh.generate_private_key("ssh-rsa", key_size=2048).export_private_key().decode())
    data = login(key, algorithm=algorithm)
    said = asked(key, data, flags)
    assert said[:1] == b"\x0e"
    assert key.key.convert_to_public().verify(data, said[5:])
    assert asked(key, login(key), 0) == FAILURE


def test_any_user_is_signed_for_where_the_address_names_none() -> None:
    key = read_key(asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
    question = b"\x0d" + text(key.key.public_data) + text(login(key, user=b"root")) + bytes(4)
    found: Any = asyncio.run(key.answer(question, Remote("ssh", "h", 22)))
    assert found[:1] == b"\x0e"
