"""The Python client through the real servers: streams, files that are streamed, and processes that are killed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from queue import Queue

import pytest
from django.conf import settings

from microvm import AccessTokens, AsyncMicrovm, CommandOutput, Microvm, Retries
from microvm.errors import NotFound
from tests.vm.client import Api
from tests.vm.instances import TestInstance

PATIENT = Retries(attempts=8, longest_wait=5)
SIZE = 40 << 20


EXAMPLES = re.findall(r"^```python\n(.*?)^```", (Path(settings.ROOT) / "docs/clients.md").read_text(), re.M | re.S)


@pytest.fixture
def platform(served: TestInstance, client: Api) -> Iterator[Microvm]:
    """With access tokens, which all requests but theirs carry."""
    headers = client.http.headers
    with Microvm(
        str(client.http.base_url),
        client_id=headers["X-Client-ID"],
        client_secret=headers["X-Client-Secret"],
        access_tokens=AccessTokens(),
        retries=PATIENT,
    ) as made:
        yield made


def test_statistics_come_once_a_second(platform: Microvm, box: str) -> None:
    follow = platform.metrics.follow(box)
    found = [stats["memoryTotalMB"] for stats in islice(follow, 3)]
    follow.close()
    assert len(found) == 3


def test_statistics_go_on_after_their_server_was_killed(served: TestInstance, platform: Microvm, box: str) -> None:
    follow = platform.metrics.follow(box)
    first = next(follow)
    served.kill("streams")
    later = list(islice(follow, 3))
    follow.close()
    assert {stats["memoryTotalMB"] for stats in later} == {first["memoryTotalMB"]}


def test_a_stream_ends_with_its_workspace(platform: Microvm) -> None:
    made = platform.workspaces.create(image="localhost/tiny:1", mode="permanent")
    platform.workspaces.wait_until_ready(made["id"])
    follow = platform.metrics.follow(made["id"])
    next(follow)
    platform.workspaces.delete(made["id"])
    assert len(list(follow)) < 60
    with pytest.raises(NotFound):
        next(platform.logs.follow(made["id"]))


def test_a_large_file_goes_up_and_down_in_parts(platform: Microvm, box: str, tmp_path: Path) -> None:
    up, down = tmp_path / "up", tmp_path / "down"
    up.write_bytes(bytes(range(256)) * (SIZE // 256))
    seen: list[int] = []
    assert platform.files.upload(box, "/root/large", up, progress=lambda done, _: seen.append(done))["size"] == SIZE
    assert platform.files.download(box, "/root/large", down, progress=lambda done, _: seen.append(done)) == SIZE
    assert down.read_bytes() == up.read_bytes()
    assert seen.count(SIZE) == 2
    assert len(seen) > 300


def test_coroutines_at_once_share_one_token(client: Api, box: str) -> None:
    async def names() -> set[str]:
        headers = client.http.headers
        async with AsyncMicrovm(
            str(client.http.base_url),
            client_id=headers["X-Client-ID"],
            client_secret=headers["X-Client-Secret"],
            access_tokens=AccessTokens(),
        ) as made:
            found = await asyncio.gather(*(made.workspaces.get(box) for _ in range(20)))
        return {workspace["id"] for workspace in found}

    assert asyncio.run(names()) == {box}


def test_the_examples_of_the_document_run(
    client: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = client.http.headers
    monkeypatch.setenv("BASE_URL", str(client.http.base_url))
    monkeypatch.setenv("CLIENT_ID", headers["X-Client-ID"])
    monkeypatch.setenv("CLIENT_SECRET", headers["X-Client-Secret"])
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) >= 7
    exec("\n".join(EXAMPLES), {})
    client.call("DELETE", "/workspace/first-call")
    printed = capsys.readouterr().out
    assert "100 %" in printed
    assert "not_found" in printed
    assert "['default']" in printed
    assert (tmp_path / "copy.txt").read_text() == "one\n"
    assert "file /srv/app/main.py" in printed
    assert "1 files" in printed


def test_bytes_go_into_a_command_and_come_back_as_they_are(platform: Microvm, box: str) -> None:
    given = bytes(range(256)) * 400
    assert platform.workspaces.exec_bytes(box, cmd="cat", stdin_bytes=given).stdout == given
    events = list(
        platform.workspaces.exec_stream(box, cmd="head -c 100000 /dev/urandom | tee copy; sha256sum copy >&2")
    )
    written = [event for event in events if isinstance(event, CommandOutput)]
    out, err = (b"".join(each.data for each in written if each.stream == name) for name in ("stdout", "stderr"))
    assert (len(out), err.split()[0].decode()) == (100_000, sha256(out).hexdigest())


def test_input_goes_into_a_command_while_its_output_comes(platform: Microvm, box: str) -> None:
    answers: Queue[bytes] = Queue()
    block = bytes(range(256)) * 8192

    def parts() -> Iterator[bytes]:
        yield b"first\n"
        assert answers.get(timeout=60) == b"first\n"  # it is answered before there is more
        for _ in range(8):
            yield block

    found, digest = bytearray(), sha256(block * 8).hexdigest()
    command = "head -n 1; cat | sha256sum"
    for event in platform.workspaces.exec_stream(box, cmd=["sh", "-c", command], stdin_parts=parts()):
        if isinstance(event, CommandOutput):
            found += event.data
            answers.put(event.data)
    assert found.decode().split() == ["first", digest, "-"]
