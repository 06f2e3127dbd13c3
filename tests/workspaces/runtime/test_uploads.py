"""`POST /files/transfer/upload`: archives of strangers, which are sifted before the guest unpacks them."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlencode

import pytest

from common.capacity import CapacityUsedUp
from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import DiskUsage
from workspaces.commands.capacity import command_capacity
from workspaces.errors import GuestDiskFull
from workspaces.runtime.transfer import inflating, sifting
from workspaces.runtime.transfer.errors import ArchiveInvalid
from workspaces.runtime.transfer.inflating import Inflater
from workspaces.runtime.transfer.sifting import Sifter

ROOM = 1 << 40
MEMORY = 4 << 20
database = pytest.mark.django_db(transaction=True)
needs_busybox = pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox")
Change = Callable[[tarfile.TarInfo], None]


def entry(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, linkname=target)


def tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as opened:
        for member, content in entries:
            opened.addfile(member, io.BytesIO(content))
    return made.getvalue()


def upload(holder: Holder, body: bytes, dest: str = "/there", **request: Any) -> Any:
    path = f"/files/transfer/upload?{urlencode({'dest': dest})}"
    return holder.send("POST", path, data=body, content_type="application/gzip", **request)


@database
@needs_busybox
def test_an_archive_is_unpacked(holder: Holder) -> None:
    body = tar(entry("./a/b", b"text", mode=0o600), entry("folder", type=tarfile.DIRTYPE, mode=0o755), link("l", "a/b"))
    answer = upload(holder, gzip.compress(body))
    assert answer.json() == {"success": True, "dest": "/there", "files_extracted": 2, "skipped": 0}
    assert (holder.disk / "there" / "l").read_text() == "text"
    assert (holder.disk / "there" / "a" / "b").stat().st_mode & 0o777 == 0o600
    assert (holder.disk / "there" / "folder").is_dir()


@database
@needs_busybox
def test_what_is_invalid_says_how_many_files_are_there(holder: Holder) -> None:
    body = gzip.compress(tar(entry("a", b"1"), entry("b", b"2")))
    for broken in (b"", b"no gzip", body[:-20], body + b"garbage", gzip.compress(b"no tar" * 1000)):
        answer = upload(holder, broken)
        assert_error(answer, 400, "archive_invalid")
        assert answer.json()["details"]["files_extracted"] in (0, 1, 2)
    assert upload(holder, body + b"garbage").json()["details"] == {"files_extracted": 2}


@database
@needs_busybox
def test_more_than_the_disk_has_is_refused(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    async def disk_usage(session: FakeGuestSession) -> DiskUsage:
        return DiskUsage(1 << 30, 0, 1000)

    monkeypatch.setattr(FakeGuestSession, "disk_usage", disk_usage)
    answer = upload(holder, gzip.compress(tar(entry("a", b"1"), entry("b", bytes(1000)), entry("c", b"3"))))
    assert_error(answer, 409, "guest_disk_full")
    assert answer.json()["details"] == {"files_extracted": 1}
    assert sorted(place.name for place in (holder.disk / "there").iterdir()) == ["a"]


@database
def test_the_place_and_the_token(holder: Holder) -> None:
    (holder.disk / "file").touch()
    body = gzip.compress(tar())
    assert_error(upload(holder, body, dest="there"), 400, "validation_error")
    assert_error(upload(holder, body, dest="/file"), 400, "path_invalid")
    assert_error(upload(holder, body, token="none"), 401, "unauthorized")
    assert_error(holder.get("/files/transfer/upload"), 405)


@database
@needs_busybox
def test_an_upload_is_one_of_the_commands_of_its_account(holder: Holder) -> None:
    body, account = gzip.compress(tar(entry("a", b"1"))), holder.workspace.account_id
    with ExitStack() as places:
        with suppress(CapacityUsedUp):
            while True:
                places.enter_context(command_capacity().reserve(account))
        answer = upload(holder, body)
        assert_error(answer, 429, "rate_limited")
        assert not (holder.disk / "there").exists()
        assert answer.headers["Retry-After"]
        assert not (holder.disk / "there" / "a").exists()
    for sent in (body, body[:-9], b"none"):
        upload(holder, sent)
        assert command_capacity().used == 0
    assert (holder.disk / "there" / "a").read_bytes() == b"1"


def sift(archive: bytes, size: int = 700, room: int = ROOM) -> tuple[Sifter, dict[str, tarfile.TarInfo]]:
    sifter = Sifter(room)
    out = b"".join(sifter.feed(archive[start : start + size]) for start in range(0, len(archive), size))
    out += sifter.finish()
    with tarfile.open(fileobj=io.BytesIO(out)) as opened:
        return sifter, {member.name: member for member in opened.getmembers()}


LONG = "/".join(["n" * 90] * 5)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("size", [1, 511, 512, 100_000])
def test_names_and_contents_pass(form: int, size: int) -> None:
    odd = "odd\udcff"
    archive = tar(entry(LONG, b"x" * 1000), entry(odd, b"y"), link("short", LONG), entry("z"), form=form)
    sifter, found = sift(archive, size)
    assert list(found) == [LONG, odd, "short", "z"]
    assert (found[LONG].size, found["short"].linkname) == (1000, LONG)
    assert (sifter.files, sifter.whole_files, sifter.skipped) == (4, 4, 0)


@pytest.mark.parametrize(
    "left_out",
    [
        entry("/absolute", b"x"), entry("../up", b"x"), entry("a/../../b", b"x"), entry("a/..", type=tarfile.DIRTYPE),
        link("l", "/etc/passwd"), link("l", "../x"), link("a/l", "../../x"), link("l", "a/../x"), link("l", ""),
        link("l", "/etc/passwd", tarfile.LNKTYPE), link("a/l", "../x", tarfile.LNKTYPE),
        entry("device", type=tarfile.CHRTYPE), entry("device", type=tarfile.BLKTYPE),
        entry("pipe", type=tarfile.FIFOTYPE),
        entry("unknown", b"xyz", type=b"Z"), entry("n/" * 2048 + "n", b"x"),
    ],
)  # fmt: skip
def test_what_would_leave_the_folder_is_left_out(left_out: tuple[tarfile.TarInfo, bytes]) -> None:
    sifter, found = sift(tar(entry("before", b"1"), left_out, entry("behind", b"2")))
    assert (list(found), sifter.skipped, sifter.files) == (["before", "behind"], 1, 2)


@pytest.mark.parametrize(
    "inside", [link("a/l", "../x"), link("a/b/l", "../../x/y"), link("l", "."), link("l", "./a//b")]
)
def test_links_that_stay_below_the_folder_pass(inside: tuple[tarfile.TarInfo, bytes]) -> None:
    assert sift(tar(inside))[0].skipped == 0


@pytest.mark.parametrize(
    "entries",
    [
        (link("a", "."), link("a/a/a/up", "../..")),
        (entry("d/e", type=tarfile.DIRTYPE), link("s", "d/e"), entry("s/x")),
        (link("a/b/l", "../.."), link("h", "a/b/l", tarfile.LNKTYPE)),
        (link("s", "d"), link("h", "s/f", tarfile.LNKTYPE)),
        (link("s", "d"), entry("t", type=tarfile.DIRTYPE), entry("s/x", b"x")),
    ],
)  # fmt: skip
def test_what_lies_behind_a_link_of_the_archive_is_left_out(entries: Any) -> None:
    sifter, found = sift(tar(*entries, entry("behind", b"2")))
    assert list(found) == [each.name for each, _ in entries[:-1]] + ["behind"]
    assert sifter.skipped == 1


def test_the_links_of_an_archive_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sifting, "MAX_LINKS", 2)
    assert sift(tar(link("a", "x"), link("b", "x")))[0].files == 2
    with pytest.raises(ArchiveInvalid, match="symbolic links"):
        sift(tar(link("a", "x"), link("b", "x"), link("c", "x")))


@database
@needs_busybox
def test_a_file_that_does_not_come_whole_is_not_there(holder: Holder) -> None:
    whole = tar(entry("a", b"1"), entry("new\nline", b"x"), entry("big", os.urandom(2 << 20)), entry("last", b"3"))
    (holder.disk / "there").mkdir()
    (holder.disk / "there" / "last").write_text("mine")
    for body in (gzip.compress(whole[:1_000_000]), gzip.compress(whole)[:1_000_000]):
        answer = upload(holder, body)
        assert_error(answer, 400, "archive_invalid")
        assert answer.json()["details"] == {"files_extracted": 2}
        assert sorted(path.name for path in (holder.disk / "there").iterdir()) == ["a", "last", "new\nline"]
    assert (holder.disk / "there" / "last").read_text() == "mine"


def test_a_lying_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tar(entry("a", b"x" * 2000), entry("b", b"y" * 2000))
    longer = bytearray(tar(entry("a", b"x" * 600), entry("b", b"y")))
    longer[:512] = entry("a", b"x" * 1100)[0].tobuf()
    for archive in (whole[:1000], whole[:2000], bytes(longer), b"\xff" * 512, whole[:100]):
        with pytest.raises(ArchiveInvalid):
            sift(archive)
    sparse = tarfile.TarInfo("s")
    sparse.type = tarfile.GNUTYPE_SPARSE
    fields = tar((entry("x")[0], b""))
    for archive in (
        sparse.tobuf() + bytes(1024),
        _with_pax(b"9 a=b\n"),
        _with_pax(b"zz path=x\n"),
        _with_pax(b"12 size=99x\n"),
    ):
        with pytest.raises(ArchiveInvalid):
            sift(archive + fields)
    monkeypatch.setattr(sifting, "MAX_ENTRIES", 1)
    with pytest.raises(ArchiveInvalid, match="entries"):
        sift(whole)
    with pytest.raises(GuestDiskFull):
        sift(whole, room=10)


def _with_pax(data: bytes) -> bytes:
    made = tarfile.TarInfo("pax")
    made.type, made.size = tarfile.XHDTYPE, len(data)
    return made.tobuf() + data.ljust(512, b"\0")


def inflated(body: bytes, size: int = 100) -> bytes:
    inflater = Inflater()
    found = b"".join(
        piece for start in range(0, len(body), size) for piece in inflater.pieces(body[start : start + size])
    )
    inflater.finish()
    return found


def test_gzip_is_inflated_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = bytes(range(256)) * 10_000
    assert inflated(gzip.compress(text) + gzip.compress(b"more")) == text + b"more"
    assert max(len(piece) for piece in Inflater().pieces(gzip.compress(text))) == inflating.PIECE
    for broken in (b"", zlib.compress(text), gzip.compress(text)[:-1], gzip.compress(text) + b"\0"):
        with pytest.raises(ArchiveInvalid):
            inflated(broken)
    monkeypatch.setattr(inflating, "RATIO_FROM", 1000)
    with pytest.raises(ArchiveInvalid, match="times as large"):
        inflated(gzip.compress(bytes(10_000_000)))


def test_memory_does_not_grow_with_the_archive() -> None:
    head = entry("zeros")[0]
    head.size = 128 << 20
    block = bytes(range(256)) * 4096
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(head.tobuf()) + b"".join(packer.compress(block) for _ in range(128))
    body += packer.compress(bytes(1024)) + packer.flush()
    inflater, sifter, size = Inflater(), Sifter(ROOM), 0
    tracemalloc.start()
    try:
        for start in range(0, len(body), 65536):
            size += sum(len(sifter.feed(piece)) for piece in inflater.pieces(body[start : start + 65536]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 512 + (128 << 20)
    assert peak < MEMORY


def test_memory_does_not_grow_with_the_fields_of_an_entry() -> None:
    sifter, whole = Sifter(ROOM), 0
    tracemalloc.start()
    try:
        for number in range(100):
            fields = b"".join(b"15 k%09d=\n" % (number * 4000 + each) for each in range(4000))
            made = tarfile.TarInfo("pax")
            made.type, made.size = tarfile.XHDTYPE, len(fields)
            whole += len(sifter.feed(made.tobuf() + fields.ljust(-(-len(fields) // 512) * 512, b"\0")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY
    assert whole == 0


def test_the_folders_of_a_name_do_not_cost_the_square_of_their_number() -> None:
    seconds = []
    for folders, times in ((204, 400), (2040, 40)):
        name = "z/" * folders
        header = entry(f"{name}z", type=tarfile.LNKTYPE, linkname=f"{name}q")[0].tobuf(tarfile.GNU_FORMAT)
        sifter = Sifter(ROOM)
        sifter.feed(link("l", "x")[0].tobuf())
        before = time.thread_time()
        for _ in range(times):
            sifter.feed(header)
        seconds.append(time.thread_time() - before)
    assert seconds[1] < 4 * seconds[0]  # the square would be ten times; what is linear is less than once
