"""The worker `media`: received bytes become a published file with what was found out, or a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest
import pyvips

from cdn import storage
from cdn.delivery import file_url
from cdn.media import pipeline
from cdn.models import File
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.media_rows import SMALL, beside_the_store, counters, stored
from tests.cdn.received import policy_set, processed_file, received_file

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_picture_is_published_with_its_size_and_variants(api: Caller) -> None:
    data = hostile.picture(".jpg", 320, 200)
    wanted = {**SMALL, "square": {"width": 50, "height": 50, "fit": "cover"}}
    file = processed_file(api.account, data, "cat.txt", content_type="text/plain", variants=wanted)
    assert (file.status, file.error) == ("active", None)
    assert (file.kind, file.content_type, file.extension) == ("image", "image/jpeg", "jpg")
    assert (file.width, file.height, file.duration_seconds, file.size) == (320, 200, None, len(data))
    small, square = file.variants.all()
    assert (small.name, small.width, small.height, small.content_type) == ("small", 40, 25, "image/webp")
    assert (square.name, square.width, square.height, square.content_type) == ("square", 50, 50, "image/jpeg")
    assert file.footprint == len(data) + small.size + square.size
    assert counters(file) == (file.footprint, 0)
    assert stored(file) == {
        storage.original_key(file.pk, sha256(data).hexdigest()),
        storage.variant_key(file.pk, 0, small.sha256),
        storage.variant_key(file.pk, 1, square.sha256),
    }
    assert not beside_the_store(file)


def test_an_empty_file_is_published_though_no_request_brought_bytes(api: Caller) -> None:
    made = api.post("/cdn/token", {"filename": "a.txt", "size": 0, "contentType": "text/plain"}).json()
    assert pipeline.file_process(made["fileId"])
    shown = api.get(f"/cdn/files/{made['fileId']}").json()["file"]
    assert (shown["status"], shown["size"], shown["content_type"]) == ("active", 0, "text/plain")
    with storage.store_file().open_local(storage.original_key(shown["id"], sha256(b"").hexdigest())) as opened:
        assert opened.read() == b""
    assert not beside_the_store(File.objects.get())


def test_variants_lie_in_the_store_as_their_rows_say(api: Caller) -> None:
    file = processed_file(api.account, hostile.picture(".png"), variants=SMALL)
    variant = file.variants.get()
    with storage.store_file().open_local(storage.variant_key(file.pk, 0, variant.sha256)) as opened:
        data = opened.read()
    assert (len(data), sha256(data).hexdigest()) == (variant.size, variant.sha256)
    image = pyvips.Image.new_from_buffer(data, "")
    assert (image.width, image.height) == (variant.width, variant.height)


def test_the_original_stays_as_it_was_uploaded(api: Caller) -> None:
    data = hostile.picture(".jpg") + b"what follows the picture"
    file = processed_file(api.account, data, variants=SMALL)
    with storage.store_file().open_local(storage.original_key(file.pk, file.sha256)) as opened:
        assert opened.read() == data


def test_a_movie_is_published_with_size_and_duration(api: Caller) -> None:
    file = processed_file(api.account, hostile.movie("mp4", 2, audio=True))
    assert (file.status, file.kind, file.width, file.height) == ("active", "video", 64, 48)
    assert file.duration_seconds == pytest.approx(2, abs=0.1)


def test_a_movie_without_pictures_is_published_as_audio(api: Caller) -> None:
    file = processed_file(api.account, hostile.movie("mp4", audio=True, width=0), content_type="video/mp4")
    assert (file.kind, file.content_type, file.extension) == ("audio", "audio/mp4", "m4a")


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"", "text/plain"),
        (b"plain", "text/plain"),
        (b"<html><script>alert(1)</script>", "text/html"),
        (hostile.SCRIPT_SVG.encode(), "image/svg+xml"),
        (bytes(range(256)) * 3, "application/octet-stream"),
    ],
)
def test_what_is_not_looked_at_is_published_as_it_came(api: Caller, data: bytes, content_type: str) -> None:
    file = processed_file(api.account, data, "picture.png", content_type="image/png")
    assert (file.status, file.content_type, file.width, file.duration_seconds) == ("active", content_type, None, None)


LONG = "\u00fc".encode() * (1 << 20)


@pytest.mark.parametrize(
    ("data", "extension"),
    [
        (b"", "utf8.txt"),
        (b"plain", "utf8.txt"),
        ("Gr\u00fc\u00dfe, \u4f60\u597d".encode(), "utf8.txt"),
        ("\ufeffGr\u00fc\u00dfe".encode(), "utf8.txt"),
        ("Gr\u00fc\u00dfe".encode("latin-1"), "txt"),
        ("Gr\u00fc\u00dfe".encode("utf-16"), "txt"),
        ("Gr\u00fc\u00dfe".encode()[:-2], "txt"),
        ("<html><title>\u00fc</title>".encode(), "utf8.html"),
        ("<html><title>\u00fc</title>".encode("latin-1"), "html"),
        # A character lies across two pieces, and what is wrong comes last.
        (b"a" + LONG, "utf8.txt"),
        (b"a" + LONG + b"\xc3", "txt"),
    ],
)
def test_text_is_known_to_be_utf8_by_all_of_its_bytes(api: Caller, data: bytes, extension: str) -> None:
    file = processed_file(api.account, data, "a.txt", content_type="text/plain")
    assert (file.status, file.extension) == ("active", extension)
    assert file_url(file).endswith(f".{extension}")
    assert "charset" not in file.content_type


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".gif", ".avif"])
def test_half_a_picture_is_published_without_a_size_unless_a_limit_or_a_variant_needs_it(
    api: Caller, suffix: str
) -> None:
    data = hostile.picture(suffix)
    half = data[: len(data) // 2]
    file = processed_file(api.account, half)
    assert (file.status, file.kind, file.width, file.height) == ("active", "image", None, None)
    wanted = processed_file(api.account, half, variants=SMALL)
    assert wanted.error["details"] == {"rule": "variants", "limit": "decodable", "actual": "damaged"}
    policy_set(api.account, maxWidth=10_000)
    limited = processed_file(api.account, half)
    assert limited.error["code"] == "cdn_policy_violation"
    assert limited.error["details"] == {"rule": "maxWidth", "limit": 10_000, "actual": None}


@pytest.mark.parametrize(
    ("policy", "data", "details"),
    [
        ({"maxWidth": 300}, lambda: hostile.picture(".png", 301, 9), {"rule": "maxWidth", "limit": 300, "actual": 301}),
        ({"maxHeight": 8}, lambda: hostile.picture(".gif", 30, 9), {"rule": "maxHeight", "limit": 8, "actual": 9}),
        ({"maxWidth": 63}, lambda: hostile.movie("webm"), {"rule": "maxWidth", "limit": 63, "actual": 64}),
        (
            {"maxWidth": 30_000},
            lambda: hostile.huge_png(),
            {"rule": "pixels", "limit": 50_000_000, "actual": 900_000_000},
        ),
        ({"maxHeight": 30_000}, lambda: hostile.long_gif(), {"rule": "frames", "limit": 60, "actual": 10_000}),
        ({"maxWidth": 9}, lambda: hostile.SCRIPT_SVG.encode(), {"rule": "maxWidth", "limit": 9, "actual": None}),
        (
            {"allowedKinds": ["video"]},
            lambda: b"plain",
            {"rule": "allowedKinds", "limit": ["video"], "actual": "document"},
        ),
        (
            {"allowedKinds": ["video"]},
            lambda: hostile.movie("mp4", audio=True, width=0),
            {"rule": "allowedKinds", "limit": ["video"], "actual": "audio"},
        ),
    ],
)
def test_what_the_policy_refuses_is_named_and_leaves_nothing(
    api: Caller, policy: dict[str, object], data: Callable[[], bytes], details: dict[str, object]
) -> None:
    """The policy changes after the permit: what was permitted then is refused now."""
    file = received_file(api.account, data())
    policy_set(api.account, **policy)
    assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"], file.error["details"]) == ("rejected", "cdn_policy_violation", details)
    assert len(file.error["message"]) > 20
    assert counters(file) == (0, 0)
    assert stored(file) == set()
    assert not beside_the_store(file)


def test_a_forged_duration_does_not_pass_the_limit(api: Caller) -> None:
    policy_set(api.account, maxDurationSeconds=5)
    forged = hostile.forged_duration(hostile.movie("mp4", 10), 1)
    file = processed_file(api.account, forged)
    assert file.error["details"] == {"rule": "maxDurationSeconds", "limit": 5, "actual": 10.0}
    honest = processed_file(api.account, hostile.forged_duration(hostile.movie("mp4", 3), 3600))
    assert (honest.status, honest.duration_seconds) == ("active", 3.0)


@pytest.mark.parametrize("data", [b"plain", hostile.SCRIPT_SVG.encode(), hostile.sound()])
def test_variants_of_what_is_no_picture_are_refused(api: Caller, data: bytes) -> None:
    file = processed_file(api.account, data, variants=SMALL)
    assert (file.status, file.error["details"]["rule"]) == ("rejected", "variants")
    assert file.error["details"]["limit"] == ["image/avif", "image/gif", "image/jpeg", "image/png", "image/webp"]


def test_a_quota_lowered_since_the_permit_refuses_the_file(api: Caller) -> None:
    file = received_file(api.account, hostile.picture(".png"))
    policy_set(api.account, maxTotalBytes=10)
    pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"]) == ("rejected", "cdn_quota_exceeded")
    assert stored(file) == set()
    assert not beside_the_store(file)


def test_a_picture_that_is_too_large_to_decode_is_published_without_its_size(api: Caller) -> None:
    file = processed_file(api.account, hostile.huge_png())
    assert (file.status, file.content_type, file.width, file.height) == ("active", "image/png", None, None)
