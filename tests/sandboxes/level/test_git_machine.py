"""Git with credentials in a real machine, which is client and server: what is left of them afterwards."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import asyncssh
import pytest

from sandboxes.level.git import services
from sandboxes.level.git.agent import read_key
from sandboxes.level.git.credentials import Credentials, Login
from sandboxes.level.git.errors import GitAuthenticationFailed
from tests.cache import CACHE
from tests.sandboxes.level.git_image import git_image
from tests.vmbackend.conftest import Harness
from vmbackend.guest.session import ExecResult, GuestAddress, GuestSession

pytestmark = pytest.mark.vm
SECRET = "s3cret-of-ada"  # of these tests
URL = "http://127.0.0.1:8080/cgi-bin/git/remote.git"
PREPARE = """set -e
mkdir -p /srv /www/cgi-bin /root/.ssh
git init -q --bare --initial-branch=main /srv/remote.git
git -C /srv/remote.git config http.receivepack true
git config --global user.name Ada
git config --global user.email ada@example.com
git init -q --initial-branch=main /first
cd /first; echo one > a; git add a; git commit -qm first; git push -q /srv/remote.git main
printf '#!/bin/sh\\nexport GIT_PROJECT_ROOT=/srv GIT_HTTP_EXPORT_ALL=1\\nexec git http-backend\\n' > /www/cgi-bin/git
chmod 755 /www/cgi-bin/git
cat > /etc/httpd.conf
httpd -p 127.0.0.1:8080 -h /www -c /etc/httpd.conf -r git
"""
# What is seen in /proc while git runs is searched afterwards.
WATCH = """rm -f /dev/shm/stop; (while [ ! -e /dev/shm/stop ]; do
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> /dev/shm/seen; sleep 0.4; done) > /dev/null 2>&1 &"""


@dataclass
class Machine:
    harness: Harness
    address: GuestAddress

    def call(self, fn: Callable[[GuestSession], Awaitable[Any]]) -> Any:
        return self.harness.pool.call(self.address, fn, timeout=300)

    def run(self, script: str, stdin: bytes = b"") -> ExecResult:
        found: ExecResult = self.call(lambda session: session.execute(script, stdin=stdin, timeout=120))
        assert found.exit_code == 0, found
        return found

    def places_of(self, *secrets: bytes) -> list[str]:
        """Files, arguments and environments that have one of these; they come to the search by its input."""

        async def search(session: GuestSession) -> ExecResult:
            program = " ".join((await session.search_tools()).program)
            places = "/ /dev/shm /tmp /run /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
            script = f"{program} -uuu -a -l -F --one-file-system --no-mmap --no-messages -f - {places} || true"
            return await session.execute(script, stdin=b"\n".join(secrets), timeout=200)

        return sorted(set(self.call(search).stdout.decode().splitlines()))

    def work(self, url: str, folder: str, auth: Credentials) -> None:
        """Clone, commit, push and pull."""
        path = f"/{folder}"
        self.call(lambda session: services.repository_clone(session, url=url, target=path, branch=None, auth=auth))
        self.run(f"cd {path}; echo {folder} > {folder}; git add .; git commit -qm {folder}")
        fields = {"path": path, "branch": None, "force": False, "auth": auth}
        pushed = self.call(lambda session: services.repository_push(session, **fields))
        assert self.run("git -C /srv/remote.git rev-parse main").stdout.decode().strip() == pushed.commit
        assert self.call(lambda session: services.repository_pull(session, **fields)).commit == pushed.commit


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    harness = factory.make_harness(tmp_path_factory.mktemp("machine"), git_image(CACHE))
    try:
        made = Machine(harness, harness.running_machine(memory_mb=256))
        hashed = subprocess.run(["busybox", "httpd", "-m", SECRET], capture_output=True, check=True, text=True)
        made.run(PREPARE, stdin=f"/cgi-bin:ada:{hashed.stdout}".encode())
        yield made
    finally:
        harness.close()


def test_a_password_is_in_no_file_and_no_process(machine: Machine) -> None:
    spellings = [SECRET.encode(), base64.b64encode(f"ada:{SECRET}".encode())]
    machine.run(WATCH)
    machine.work(URL, "password", Login("ada", SECRET))
    wrong = Login("ada", f"{SECRET}x")
    with pytest.raises(GitAuthenticationFailed) as refusal:
        machine.call(
            lambda session: services.repository_clone(session, url=URL, target="/wrong", branch=None, auth=wrong)
        )
    assert SECRET not in str(refusal.value.message)
    machine.run("touch /dev/shm/stop")
    assert machine.places_of(*spellings) == []
    assert machine.run("git -C /password config remote.origin.url").stdout.decode().strip() == URL
    assert machine.run("ls -d /dev/shm/.ask-* || true").stdout == b""


def test_a_key_never_enters_the_machine(machine: Machine) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    public = key.export_public_key().decode()
    text = key.export_private_key().decode()
    machine.call(lambda session: session.set_ssh(True, [public]))
    machine.run(WATCH)
    machine.work("root@127.0.0.1:/srv/remote.git", "key", read_key(text))
    machine.run("touch /dev/shm/stop")
    assert machine.places_of(*(line.encode() for line in text.splitlines()[2:-1])) == []
    assert machine.run("ps | grep '[s]sh -o' || true").stdout == b""


def test_the_search_of_these_tests_finds_what_is_there(machine: Machine) -> None:
    machine.run("read S; echo $S > /root/planted; S=$S sleep 100 > /dev/null 2>&1 &", stdin=b"planted-secret\n")
    found = machine.places_of(b"planted-secret")
    assert "/root/planted" in found
    assert any(place.startswith("/proc/") and place.endswith("/environ") for place in found)
