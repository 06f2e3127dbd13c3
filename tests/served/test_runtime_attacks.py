"""Archives and links of strangers through the real servers: nothing outside of the folder changes, nothing is a 500."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.served.requests import addresses, cut_off, head
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.workspaces.runtime.test_uploads import entry, link, tar

pytestmark = pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox")
HARD, FOLDER, PIPE = tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
GZIP = {"Content-Type": "application/gzip"}


@dataclass
class Inside:
    """The runtime of a workspace, and its disk past the platform."""

    http: httpx.Client
    disk: Path
    token: str

    def clear(self) -> None:
        subprocess.run(["rm", "-rf", self.disk / "dest"], check=True)

    def upload(self, body: bytes, dest: str = "/dest") -> httpx.Response:
        return self.http.post("/files/transfer/upload", params={"dest": dest}, content=body, headers=GZIP)

    def around(self) -> dict[str, Any]:
        """All that there is outside of the folder."""
        return {
            str(path): (path.lstat().st_mode, os.readlink(path) if path.is_symlink() else path.read_bytes())  # noqa: PTH115
            for path in [*self.disk.rglob("*"), self.disk.parent]
            if "dest" not in path.relative_to(self.disk.parent).parts and not path.is_dir()
        }


@pytest.fixture(scope="module")
def inside(served: TestInstance, client: Api) -> Iterator[Inside]:
    box = client.create("localhost/tiny:1")["id"]
    made = client.call("POST", f"/workspace/{box}/runtime-api-access/enable")
    disk = served.state / "machines/directories" / box / "disk"
    for name in ("canary", "etc/canary", "deep/er/canary"):
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text("mine")
    headers = {"Authorization": f"Bearer {made['token']}"}
    with httpx.Client(base_url=made["url"], headers=headers, trust_env=False, timeout=120) as http:
        yield Inside(http, disk, made["token"])


def pax(fields: bytes, *entries: Any) -> bytes:
    made = tarfile.TarInfo("pax")
    made.type, made.size = tarfile.XHDTYPE, len(fields)
    return made.tobuf() + fields.ljust(-(-len(fields) // 512) * 512, b"\0") + tar(*entries)


def record(name: str, value: str) -> bytes:
    text = f" {name}={value}\n"
    return f"{len(text) + 2}{text}".encode()


def raw(name: bytes, **fields: Any) -> bytes:
    """A header with these bytes as its name."""
    made = bytearray(entry("x", **fields)[0].tobuf())
    made[:100] = name.ljust(100, b"\0")[:100]
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


ATTACKS = {
    "absolute": tar(entry("/canary", b"evil")),
    "parent": tar(entry("../canary", b"evil")),
    "parent within": tar(entry("a/../../canary", b"evil")),
    "parent folder": tar(entry("..", type=FOLDER, mode=0)),
    "many slashes": tar(entry("//..//..//canary", b"evil")),
    "link out": tar(link("l", "/etc"), entry("l/canary", b"evil")),
    "link up": tar(link("l", ".."), entry("l/canary", b"evil")),
    "link of links": tar(link("a", "."), link("a/a/a/up", "../.."), entry("up/canary", b"evil")),
    "link of links alone": tar(link("a", "."), link("a/a/a/up", "../..")),
    "link through a link": tar(
        entry("d/e", type=FOLDER), link("s", "d"), link("s/e/u", "../../.."), entry("d/e/u/canary", b"e")
    ),
    "link down and up": tar(link("down", "a/b"), link("l", "down/../../.."), entry("l/canary", b"evil")),
    "hard link": tar(link("h", "/etc/canary", HARD), entry("h", b"evil")),
    "hard link up": tar(link("h", "../canary", HARD), entry("h", b"evil")),
    "hard link of a link": tar(entry("a/b", type=FOLDER), link("a/b/l", "../.."), link("h", "a/b/l", HARD)),
    "folder becomes a link": tar(entry("f", type=FOLDER), entry("f/x", b"x"), link("f", ".."), entry("f/canary", b"e")),
    "file becomes a link": tar(entry("f", b"x"), link("f", "../canary"), entry("f", b"evil")),
    "link becomes a folder": tar(link("f", "g"), entry("f", type=FOLDER), entry("f/x", b"x")),
    "device": tar(entry("dev", type=tarfile.CHRTYPE, devmajor=1, devminor=1)),
    "block device": tar(entry("dev", type=tarfile.BLKTYPE, devmajor=8)),
    "pipe": tar(entry("p", type=PIPE), entry("p", b"x")),
    "sparse": tar(entry("s", type=tarfile.GNUTYPE_SPARSE)),
    "pax path": pax(record("path", "../canary"), entry("ok", b"evil")),
    "pax absolute": pax(record("path", "/etc/canary"), entry("ok", b"evil")),
    "pax link": pax(record("linkpath", "../../etc"), link("l", "inside"), entry("l/canary", b"evil")),
    "pax size": pax(record("size", "999999999999"), entry("ok", b"evil")),
    "pax size small": pax(record("size", "0"), entry("ok", tar(entry("../canary", b"evil")))),
    "pax negative": pax(record("size", "-1"), entry("ok", b"evil")),
    "pax NUL": pax(record("path", "ok\0/../../canary"), entry("ok", b"evil")),
    "pax endless": pax(b"9" * 600, entry("ok", b"evil")),
    "newline": tar(entry("a\nb", b"x"), entry("\n", b"x"), entry("x/\n\n/..", b"x")),
    "option": tar(entry("-rf", b"x"), entry("--to-command=touch canary", b"x"), entry("-C", type=FOLDER)),
    "long": tar(entry("n" * 300, b"x"), form=tarfile.GNU_FORMAT),
    "deep": tar(entry("d/" * 300 + "f", b"x"), form=tarfile.GNU_FORMAT),
    "bytes": raw(b"\xff\xfe\x01/..") + bytes(1024),
    "name of bytes": raw(b"a\0b/../../canary") + bytes(1024),
    "huge": entry("x", size=1 << 40)[0].tobuf() + b"x" * 4096,
    "negative": raw(b"x")[:124] + b"\xff" * 12 + raw(b"x")[136:] + bytes(1024),
    "set user": tar(entry("s", b"x", mode=0o6755, uid=0)),
    "dot": tar(entry(".", type=FOLDER, mode=0), entry("./", type=FOLDER, mode=0), entry("", b"x")),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_outside_of_the_folder_changes(inside: Inside, name: str) -> None:
    inside.clear()
    before = inside.around()
    for body in (ATTACKS[name], tar(entry("up/canary", b"evil"), entry("l/canary", b"evil"), entry("h/canary", b"e"))):
        answer = inside.upload(gzip.compress(body))
        assert answer.status_code in (200, 400, 409), answer.text
        assert answer.status_code == 200 or answer.json()["code"] in ("archive_invalid", "guest_disk_full"), answer.text
    assert inside.around() == before
    for path in (inside.disk / "dest").rglob("*"):
        assert path.is_symlink() or path.is_dir() or path.is_file(), path
        assert path.resolve().is_relative_to(inside.disk / "dest"), path


GOOD = gzip.compress(tar(entry("first", b"1"), entry("big", os.urandom(3 << 20)), entry("last", b"3")))
BOMB = gzip.compress(gzip.compress(bytes(64 << 20)))
BROKEN = {
    "nothing": b"", "a part of the header": GOOD[:5], "the header": GOOD[:10], "a part": GOOD[:700_000],
    "all but the end": GOOD[:-8], "all but a byte": GOOD[:-1],
}  # fmt: skip


@pytest.mark.parametrize("how", ["length", "chunked"])
@pytest.mark.parametrize("stage", BROKEN)
def test_a_body_that_breaks_off_is_an_error(served: TestInstance, inside: Inside, stage: str, how: str) -> None:
    inside.clear()
    part = BROKEN[stage]
    headers = {"Authorization": f"Bearer {inside.token}", **GZIP}
    headers |= {"Content-Length": str(len(GOOD))} if how == "length" else {"Transfer-Encoding": "chunked"}
    sent = part if how == "length" or not part else b"%x\r\n%s\r\n" % (len(part), part)
    data = head("POST", "/r/files/transfer/upload?dest=/dest", headers) + b"\r\n" + sent
    status, body = cut_off(addresses(served)["edge"], data)
    assert status in (0, 400), body
    assert not body or body["code"] in ("invalid_json", "archive_invalid")
    time.sleep(0.5)  # the program in the machine may be at it still
    until(lambda: has_no_half_file(inside), 30, "a file that has not come whole is removed")


def has_no_half_file(inside: Inside) -> bool:
    big = inside.disk / "dest" / "big"
    return not big.exists() or big.stat().st_size == 3 << 20


@pytest.mark.parametrize("stage", BROKEN)
def test_an_archive_that_breaks_off_leaves_no_half_file(inside: Inside, stage: str) -> None:
    inside.clear()
    answer = inside.upload(BROKEN[stage])
    assert (answer.status_code, answer.json()["code"]) == (400, "archive_invalid")
    assert has_no_half_file(inside)
    whole = [path for path in (inside.disk / "dest").rglob("*") if path.is_file()]
    assert answer.json()["details"]["files_extracted"] == len(whole)


def test_bombs_and_garbage_are_refused(inside: Inside) -> None:
    for body in (BOMB, GOOD + b"garbage", GOOD + GOOD[:100], gzip.compress(bytes(1 << 20)) * 3, b"\x1f\x8b" * 1000):
        answer = inside.upload(body)
        assert answer.status_code in (200, 400), (body[:40], len(body), answer.text)
    zeros = gzip.compress(tar(entry("zeros", bytes(100 << 20))))
    assert inside.upload(zeros).json()["code"] in ("archive_invalid", "guest_disk_full")
    assert not (inside.disk / "dest" / "zeros").exists()


RANGES = [
    "bytes=5-2", "bytes=a-b", "bytes=-0", "bytes=0-0,5-6", "bytes=" + "0-1," * 5000, "bytes=99999999999999-",
    "bytes=-99999999999999999999", "items=0-1", "bytes=", "bytes=0-99999999999999999999999",
]  # fmt: skip


def test_a_link_is_for_its_file_method_and_time_alone(inside: Inside, client: Api) -> None:
    def link_to(path: str, method: str, **more: Any) -> str:
        body = {"path": path, "method": method, "ttl_seconds": 60, **more}
        answer = inside.http.post("/files/links", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["url"])

    (inside.disk / "linked").write_bytes(bytes(range(256)) * 40)
    read, put = link_to("/linked", "GET"), link_to("/linked", "PUT", max_bytes=20_000)
    base, _, text = read.rpartition("/")
    plain = httpx.Client(trust_env=False, timeout=60)
    tampered = [
        text[:-1],
        text[1:],
        text + "A",
        text[::-1],
        text.replace(text[5], "x"),
        text.split(":")[0],
        "x" * 50_000,
    ]
    tampered += [f"{put.rpartition('/')[2].split(':')[0]}:{':'.join(text.split(':')[1:])}", "%00", "..", "a%2F..", "."]
    for each in tampered:
        for method in ("GET", "PUT", "DELETE"):
            answer = plain.request(method, f"{base}/{each}", content=b"evil" if method == "PUT" else None)
            assert answer.status_code in (401, 403, 404, 405, 414, 431), (each[:60], method, answer.status_code)
    for method, url in (("PUT", read), ("GET", put), ("DELETE", read), ("POST", put)):
        assert plain.request(method, url).status_code == 405
    for asked in RANGES:
        answer = plain.get(read, headers={"Range": asked})
        assert answer.status_code in (200, 206, 400, 416, 431), (asked[:40], answer.status_code)
    before = digest(inside)
    assert plain.put(put, content=b"x" * 20_001).status_code == 413
    assert plain.put(put, content=iter([b"x" * 7000] * 3)).status_code == 413
    assert digest(inside) == before
    begun = head("PUT", f"/r/{put.partition('/r/')[2]}", {"Content-Length": "9000"}) + b"\r\n" + b"x" * 100
    assert cut_off(address_of(put), begun)[0] in (0, 400)
    assert digest(inside) == before
    assert not list(inside.disk.glob(".*part*"))
    assert plain.put(put, content=b"new").json()["size"] == 3
    workspace = inside.disk.parent.name
    client.call("POST", f"/workspace/{workspace}/runtime-api-access/token")
    assert [plain.get(read).status_code, plain.put(put, content=b"evil").status_code] == [403, 403]
    client.call("POST", f"/workspace/{workspace}/runtime-api-access/disable")
    assert [plain.get(read).status_code, plain.put(put, content=b"evil").status_code] == [403, 403]
    assert (inside.disk / "linked").read_bytes() == b"new"


def digest(inside: Inside) -> str:
    return hashlib.sha256((inside.disk / "linked").read_bytes()).hexdigest()


def address_of(url: str) -> tuple[str, int]:
    parts = httpx.URL(url)
    return parts.host, int(parts.port or 80)
