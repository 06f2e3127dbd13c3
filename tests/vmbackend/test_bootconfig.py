from __future__ import annotations

import re
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from vmbackend.driver import Boot, Workload, WorkloadRestart
from vmbackend.errors import BackendUnavailable
from vmbackend.guest import cpio
from vmbackend.guest.bootconfig import GuestConfig, encode_config, generate_host_key, is_interactive_shell
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
    encoded = encode_config(replace(CONFIG, boot=boot))
    assert encoded.endswith(b"\0")
    return encoded[:-1].decode("utf-8", "surrogateescape").split("\0")


def test_every_value_is_a_record_and_lists_repeat_their_key() -> None:
    assert {
        "hostname=one", "address=10.0.0.5/20", "gateway=10.0.0.1", "dns=10.0.0.1", "dns=9.9.9.9",
        "host_key=00016b6579", "authorized_key=ssh-ed25519 AAAA control", "env=A=b=c d", "env=EMPTY=",
        "user=dev", "cwd=", "stop_grace=5",
    } == set(records())  # fmt: skip


def test_a_main_process_wins_over_the_entrypoint() -> None:
    lines = records(Boot(hostname="x", cmd=("run", "", "a b"), entrypoint=("serve",)))
    assert [line for line in lines if line.startswith(("cmd", "entrypoint"))] == [
        "cmd=run",
        "cmd=",
        "cmd=a b",
    ]


def test_folders_are_passed_in_their_order() -> None:
    lines = records(Boot(hostname="x", directories=("/srv", "/a b")))
    assert [line for line in lines if line.startswith("directory")] == ["directory=/srv", "directory=/a b"]


def test_an_entrypoint_is_passed_unless_it_is_a_bare_shell() -> None:
    assert "entrypoint=serve" in records(Boot(hostname="x", entrypoint=("serve", "-v")))
    assert not any(line.startswith("entrypoint") for line in records(Boot(hostname="x", entrypoint=("/bin/bash",))))
    assert not is_interactive_shell(("bash", "-c", "x"))


def test_non_utf8_values_are_encoded_unchanged() -> None:
    boot = Boot(hostname="x", env={"RAW": b"\xff".decode("utf-8", "surrogateescape")})
    assert b"env=RAW=\xff\0" in encode_config(replace(CONFIG, boot=boot))


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkK4b6RIRacrcHLXFlithFdjnjjmZr9KHrm56BAluEq"


def extra_records(boot: Boot) -> list[str]:
    """The records in addition to those of a plain machine."""
    return records(boot)[len(records(Boot(hostname="x"))) :]


def test_flags_are_encoded_only_when_set() -> None:
    assert extra_records(
        Boot(hostname="x", wait_for_init=True, ssh=True, ssh_keys=(f" {KEY} me\n", KEY), keep_logs=False)
    ) == [
        "wait_for_init=1",
        "ssh=1",
        "drop_logs=1",
        f"ssh_key={KEY} me",
        f"ssh_key={KEY}",
    ]
    assert extra_records(Boot(hostname="x", ssh_keys=(KEY,))) == []


def test_a_workload_is_encoded_as_its_name_and_its_options() -> None:
    full = Workload(
        "web.1-x_",
        ("serve", "", "a b"),
        env={"A": "b=c"},
        working_dir="/srv",
        user="dev:12",
        restart=WorkloadRestart.ALWAYS,
        max_restarts=3,
        restart_delay=0,
        log_path="/srv/x.log",
    )
    fields = [line.removeprefix("workload:web.1-x_:") for line in extra_records(Boot(hostname="x", workloads=(full,)))]
    assert fields == [
        "workload=web.1-x_", "cmd=serve", "cmd=", "cmd=a b", "env=A=b=c", "cwd=/srv", "user=dev:12",
        "log=/srv/x.log", "restart=always", "max_restarts=3", "restart_delay=0",
    ]  # fmt: skip
    bare = extra_records(Boot(hostname="x", workloads=(full, Workload("b", ("run",)))))[len(fields) :]
    assert bare == [
        "workload=b", "workload:b:cmd=run", "workload:b:restart=on-failure", "workload:b:max_restarts=0",
        "workload:b:restart_delay=1",
    ]  # fmt: skip


def workload(**changes: object) -> Boot:
    fields = {"name": "web", "cmd": ("run",)} | changes
    return Boot(hostname="x", workloads=(Workload(**fields),))


@pytest.mark.parametrize(
    "boot",
    [
        *(
            workload(name=name)
            for name in ("", "cmd", "../up", "a b", "a/b", "a:b", "a=b", "-a", ".a", "a" * 65, "a\n")
        ),
        *(workload(log_path=path) for path in ("log", "", "/", "/a/", "/a/..", "/a/.", "/a\0", "/" + "a" * 4000)),
        workload(cmd=()),
        workload(cmd=("",)),
        workload(cmd=("a\0",)),
        workload(env={"A=B": "c"}),
        workload(env={"A": "\0"}),
        workload(working_dir="/" + "a" * 4000),
        workload(user="u" * 256),
        workload(restart="sometimes"),
        workload(max_restarts=-1),
        workload(max_restarts=1_000_001),
        workload(restart_delay=-1),
        workload(restart_delay=86_401),
        Boot(hostname="x", workloads=(Workload("a", ("b",)), Workload("a", ("c",)))),
        Boot(hostname="x", workloads=tuple(Workload(f"a{n}", ("b",)) for n in range(65))),
        Boot(hostname="x", ssh=True, ssh_keys=("nonsense",)),
        Boot(hostname="x", ssh_keys=("nonsense",)),
        Boot(hostname="x", ssh=True, ssh_keys=(f"{KEY}\n{KEY}",)),
        Boot(hostname="x", ssh=True, ssh_keys=(f'command="id" {KEY}',)),
        Boot(hostname="x", ssh=True, ssh_keys=(f"{KEY} {'c' * 4000}",)),
        Boot(hostname="x", user="u" * 256),
    ],
)
def test_values_beyond_the_limits_of_the_guest_are_refused(boot: Boot) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the contract defines no message
        encode_config(replace(CONFIG, boot=boot))


def test_a_configuration_has_the_size_limit_of_the_guest() -> None:
    rest = len(encode_config(replace(CONFIG, boot=Boot(hostname="x", env={"A": ""}))))
    free_bytes = (256 << 10) - rest
    assert len(encode_config(replace(CONFIG, boot=Boot(hostname="x", env={"A": "a" * free_bytes})))) == 256 << 10
    with pytest.raises(ValueError, match="larger"):
        encode_config(replace(CONFIG, boot=Boot(hostname="x", env={"A": "a" * (free_bytes + 1)})))


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
def test_values_that_cannot_be_encoded_are_refused(boot: Boot) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the contract defines no message
        encode_config(replace(CONFIG, boot=boot))


def test_a_host_key_is_private_and_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "key"
    line = generate_host_key(path)
    assert re.match(r"ssh-ed25519 AAAA\S+", line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert generate_host_key(path) == line
    assert generate_host_key(tmp_path / "other") != line


@pytest.mark.skipif(shutil.which("dropbearkey") is None, reason="dropbear is not installed")
def test_dropbear_reads_the_host_key(tmp_path: Path) -> None:
    line = generate_host_key(tmp_path / "key")
    read = subprocess.run(["dropbearkey", "-y", "-f", tmp_path / "key"], capture_output=True, check=True, text=True)
    assert line in [" ".join(printed.split()[:2]) for printed in read.stdout.splitlines()]


def test_a_broken_host_key_raises_backend_unavailable(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"no key")
    with pytest.raises(BackendUnavailable):
        generate_host_key(tmp_path / "key")


def test_the_error_without_a_kit_names_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"manage\.py guest_kit"):
        find_kit(tmp_path)


def test_an_archive_does_not_depend_on_the_order_of_its_nodes() -> None:
    nodes = [cpio.regular("a/b/file", b"abc"), cpio.symlink("link", "a"), cpio.directory("a", 0o700)]
    archive = cpio.archive(nodes)
    assert archive == cpio.archive(reversed(nodes))
    assert archive.index(b"\0a/b\0"[1:]) < archive.index(b"a/b/file")


def test_a_kernel_option_that_was_dropped_is_reported() -> None:
    check_config("CONFIG_A=y\nCONFIG_GONE=y\n", "CONFIG_A=y\n")
    with pytest.raises(BackendUnavailable, match="CONFIG_A"):
        check_config("CONFIG_A=y\n", "# CONFIG_A is not set\n")
