"""Types of files: by their bytes alone, in bounded time, and each with an extension of its own."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from cdn.sniffing import HEAD_BYTES, file_sniff, type_sniff
from cdn.types import KINDS, TYPES, claimed_kind, content_types, file_type, is_inline
from tests.cdn import hostile


def test_each_extension_stands_for_one_type() -> None:
    assert len(set(content_types().values())) == len(content_types())
    assert {row.kind for row in TYPES.values()} == set(KINDS)
    assert all(content_types()[row.extension] == row.content_type for row in TYPES.values())
    texts = {
        f"utf8.{row.extension}": f"{row.content_type}; charset=utf-8"
        for row in TYPES.values()
        if "text/" in row.content_type
    }
    assert (
        content_types().items() - {row.extension: row.content_type for row in TYPES.values()}.items() == texts.items()
    )


@pytest.mark.parametrize(
    "content_type", ["image/svg+xml", "text/html", "text/xml", "application/pdf", "x/unknown", "application/wasm", ""]
)
def test_what_could_run_scripts_and_what_is_unknown_is_an_attachment(content_type: str) -> None:
    assert not is_inline(content_type)


def test_unknown_types_are_bytes_that_keep_their_kind() -> None:
    assert file_type("image/x-new").kind == "image"
    assert (file_type("image/x-new").content_type, file_type("image/x-new").extension) == (
        "application/octet-stream",
        "bin",
    )
    assert file_type("chemical/x-pdb").kind == "other"


def test_a_claim_may_have_parameters() -> None:
    assert claimed_kind("Text/HTML; charset=utf-8") == "document"
    assert claimed_kind("video/mp4;codecs=avc1") == "video"
    assert claimed_kind("nonsense") == "other"


FOUND = {
    "image/jpeg": lambda: hostile.picture(".jpg"),
    "image/png": lambda: hostile.picture(".png"),
    "image/webp": lambda: hostile.picture(".webp"),
    "image/gif": lambda: hostile.picture(".gif"),
    "image/avif": lambda: hostile.picture(".avif"),
    "image/tiff": lambda: hostile.picture(".tif"),
    "video/mp4": lambda: hostile.movie("mp4"),
    "video/webm": lambda: hostile.movie("webm"),
    "video/x-matroska": lambda: hostile.movie("mkv"),
    "video/x-msvideo": lambda: hostile.movie("avi"),
    "video/mp2t": lambda: hostile.movie("ts"),
    "video/quicktime": lambda: hostile.movie("mov"),
    "audio/wav": hostile.sound,
    "application/pdf": lambda: b"%PDF-1.7\n1 0 obj\n",
    "application/zip": hostile.zip_bomb,
    "text/html": lambda: b"<!DOCTYPE html><html><script>alert(1)</script>",
    "image/svg+xml": hostile.entity_bomb_svg,
    "text/plain": lambda: b"ffconcat version 1.0\nfile '/etc/passwd'\n",
    "application/octet-stream": lambda: bytes(range(256)) * 9,
}


@pytest.mark.parametrize("content_type", FOUND)
def test_the_type_is_that_of_the_bytes(content_type: str) -> None:
    data = FOUND[content_type]()
    assert type_sniff(data).content_type == content_type
    assert file_sniff(io.BytesIO(data)).content_type == content_type


def test_a_playlist_and_a_program_are_text() -> None:
    for data in (hostile.PLAYLIST.encode(), b"#!/bin/sh\nrm -rf /\n", b"import os\n" * 9, b"<?php echo 1; ?>"):
        assert type_sniff(data).content_type == "text/plain"


def test_a_file_that_is_several_things_is_what_its_first_bytes_are() -> None:
    data = hostile.polyglot()
    assert zipfile.is_zipfile(io.BytesIO(data))
    assert b"*/=1;alert(1)//" in data
    assert type_sniff(data).content_type == "image/gif"


def test_an_empty_file_is_text() -> None:
    assert type_sniff(b"").content_type == "text/plain"


def test_nothing_after_the_first_64_kib_is_looked_at() -> None:
    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.read_bytes += len(data)
            return data

    file = Counting(b"\0" * HEAD_BYTES + b"<html>" * 100_000)
    assert file_sniff(file).content_type == "application/octet-stream"
    assert file.read_bytes == HEAD_BYTES


@pytest.mark.parametrize(
    "piece",
    [b"\n", b" ", b"<", b"{", b"\0", b"(", b'"', b"<a ", b"a,b\n", b"From: ", b"%!PS", b"\x7fELF\xff", b"PK\x03\x04",
     b"\xff\xfb", b"<?xml ", b"begin 644 ", b"\r", b"[", b"\\", b"if (", b"\x00\x00\x01\xba", b"\t\n"],
)  # fmt: skip
def test_bytes_that_match_many_patterns_take_less_than_two_seconds(piece: bytes) -> None:
    """Processor time of this thread: what else runs on the host does not count."""
    data = (piece * HEAD_BYTES)[:HEAD_BYTES]
    began = time.thread_time()
    type_sniff(data)
    assert time.thread_time() - began < 2
