"""What the confined process finds out of pictures, video and audio, and the variants that it makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import pyvips

from cdn.inspection.messages import Findings, InspectionOrder, VariantOrder, found_of
from cdn.media.inspections import run_inspection
from cdn.sniffing import type_sniff
from tests.cdn import hostile

PICTURES = (".jpg", ".png", ".webp", ".gif", ".avif")


def order(width: int | None, height: int | None, fit: str = "contain", form: str = "png", quality: int | None = None):
    return VariantOrder(-1, width, height, fit, form, quality)


class Looking:
    """Files are looked at in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self, data: bytes, *variants: VariantOrder, content_type: str = "", **options: object) -> Findings:
        path = self._folder / "file"
        path.write_bytes(data)
        for made in self.outputs(variants):
            made.unlink(missing_ok=True)
        wanted = InspectionOrder(
            content_type or type_sniff(data).content_type,
            variants=variants,
            **options,  # type: ignore[arg-type]
        )
        file = os.open(path, os.O_RDONLY)
        try:
            return run_inspection(file, wanted, self.outputs(variants), lambda: None)
        finally:
            os.close(file)

    def outputs(self, variants: tuple[VariantOrder, ...]) -> list[Path]:
        return [self._folder / f"variant-{number}" for number, _ in enumerate(variants)]

    def variants(self, data: bytes, *variants: VariantOrder) -> list[pyvips.Image]:
        """The variants, decoded, after a look at whether the answer is true."""
        found = self.found(data, *variants)
        assert found.reason == ""
        shown = [pyvips.Image.new_from_file(str(path)) for path in self.outputs(variants)]
        assert [(image.width, image.height) for image in shown] == [tuple(made) for made in found.variants]
        return shown


@pytest.fixture
def looking(tmp_path: Path) -> Looking:
    return Looking(tmp_path)


@pytest.mark.parametrize("suffix", PICTURES)
def test_a_picture_has_its_size(looking: Looking, suffix: str) -> None:
    found = looking.found(hostile.picture(suffix, 321, 123))
    assert (found.width, found.height, found.frames, found.reason) == (321, 123, 1, "")


@pytest.mark.parametrize("suffix", PICTURES)
def test_half_a_picture_is_damaged(looking: Looking, suffix: str) -> None:
    data = hostile.picture(suffix)
    assert looking.found(data[: len(data) // 2]).reason == "damaged"
    assert looking.found(data[: len(data) // 2], order(50, 50)).reason == "damaged"
    assert looking.found(data[: len(data) // 2], order(50, 50, "cover")).reason == "damaged"
    assert looking.found(data[:20]).reason == "damaged"


def test_width_and_height_are_those_of_the_upright_picture(looking: Looking) -> None:
    image = pyvips.Image.new_from_buffer(hostile.picture(".jpg", 300, 100), "").copy()
    image.set_type(pyvips.GValue.gint_type, "orientation", 6)
    data = image.write_to_buffer(".jpg")
    found = looking.found(data, order(50, None))
    assert (found.width, found.height, found.variants[0]) == (100, 300, (50, 150))


@pytest.mark.parametrize(
    ("suffix", "orientation"), [*((".jpg", number) for number in range(1, 9)), (".png", 6), (".webp", 5), (".avif", 8)]
)
def test_pictures_are_turned_as_browsers_show_them(looking: Looking, suffix: str, orientation: int) -> None:
    """Of a red and a black half the variants show where red is to be: right, and by the orientation elsewhere."""
    black = pyvips.Image.black(150, 100, bands=3).copy(interpretation="srgb")
    image = black.join(black.linear(1, [250, 0, 0]), "horizontal").cast("uchar").copy(interpretation="srgb")
    image.set_type(pyvips.GValue.gint_type, "orientation", orientation)
    data = image.write_to_buffer(suffix, Q=95) if suffix != ".png" else image.write_to_buffer(suffix)
    is_sideways = orientation >= 5
    size = (100, 300) if is_sideways else (300, 100)
    found = looking.found(data, max_width=size[0], max_height=size[1])
    assert (found.width, found.height, found.reason) == (*size, "")
    assert looking.found(data, max_width=size[0] - 1).reason == "limits"
    made = looking.variants(data, order(50, 50), order(40, 40, "cover"), order(60, 20, "fill"))
    assert [(each.width, each.height) for each in made] == [(17, 50) if is_sideways else (50, 17), (40, 40), (60, 20)]
    # Where the right side of the stored picture is shown (EXIF 2.32, Orientation).
    x, y = {1: (0.9, 0.5), 2: (0.1, 0.5), 3: (0.1, 0.5), 4: (0.9, 0.5)}.get(
        orientation, (0.5, 0.9) if orientation in (5, 6) else (0.5, 0.1)
    )
    for each in (made[0], made[2]):
        across, down = int(each.width * x), int(each.height * y)
        assert each(across, down)[0] > 180, (each.width, each.height)
        assert each(each.width - 1 - across, each.height - 1 - down)[0] < 60


def test_frames_are_counted_before_one_is_decoded(looking: Looking) -> None:
    for suffix in (".gif", ".webp"):
        assert looking.found(hostile.animation(suffix, 60)).frames == 60
        assert looking.found(hostile.animation(suffix, 61)).reason == "frames"
    assert looking.found(hostile.long_gif()) == ("image/gif", 1, 1, 10_000, None, (), "frames")


def test_a_larger_picture_than_the_policy_allows_is_not_decoded(looking: Looking) -> None:
    data = hostile.picture(".png", 300, 200)
    for limits in ({"max_width": 299}, {"max_height": 199}, {"max_width": 0}):
        assert looking.found(data, order(9, 9), **limits) == ("image/png", 300, 200, 1, None, (), "limits")
    assert looking.found(data, max_width=300, max_height=200).reason == ""


def test_a_heif_file_without_av1_is_not_decoded(looking: Looking) -> None:
    """HEVC under the name of AVIF: what makes it AV1 is replaced."""
    data = hostile.picture(".avif").replace(b"av01", b"hvc1").replace(b"av1C", b"hvcC")
    found = looking.found(data, order(9, 9), content_type="image/avif")
    assert found.reason in ("damaged", "unsupported")
    assert looking.found(data, content_type="image/heic").reason == "unsupported"


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        (order(100, 100), (100, 50)),
        (order(100, None), (100, 50)),
        (order(None, 100), (200, 100)),
        (order(None, None), (400, 200)),
        (order(100, 100, "cover"), (100, 100)),
        (order(30, 90, "fill"), (30, 90)),
        # Never larger than the original; `cover` keeps the proportions that were asked for.
        (order(8000, 8000), (400, 200)),
        (order(8000, 8000, "cover"), (200, 200)),
        (order(8000, 100, "fill"), (400, 100)),
        (order(1, 1), (1, 1)),
    ],
)
def test_how_variants_fit(looking: Looking, wanted: VariantOrder, size: tuple[int, int]) -> None:
    (image,) = looking.variants(hostile.picture(".jpg", 400, 200), wanted)
    assert (image.width, image.height) == size


@pytest.mark.parametrize("suffix", PICTURES)
def test_every_format_is_made_of_every_picture(looking: Looking, suffix: str) -> None:
    formats = ("jpeg", "png", "webp", "avif")
    made = looking.variants(hostile.picture(suffix), *(order(60, 60, form=form) for form in formats))
    loaders = ["jpegload", "pngload", "webpload", "heifload"]
    assert [image.get("vips-loader") for image in made] == loaders


def test_quality_makes_files_smaller(looking: Looking) -> None:
    for form in ("jpeg", "webp", "avif"):
        looking.variants(
            hostile.picture(".png"), order(200, 200, form=form, quality=10), order(200, 200, form=form, quality=95)
        )
        low, high = (path.stat().st_size for path in looking.outputs((order(1, 1), order(1, 1))))
        assert low < high / 2, form


@pytest.mark.parametrize("form", ["jpeg", "png", "webp", "avif"])
def test_variants_have_no_exif_place_profile_or_comment(looking: Looking, form: str) -> None:
    image = pyvips.Image.new_from_buffer(hostile.picture(".jpg"), "").icc_transform("p3", input_profile="srgb").copy()
    image.set_type(pyvips.GValue.gstr_type, "exif-ifd3-GPSLatitude", "52/1 30/1 0/1")
    image.set_type(pyvips.GValue.gstr_type, "exif-ifd0-Artist", "somebody")
    data = image.write_to_buffer(".jpg", keep="all")
    original = pyvips.Image.new_from_buffer(data, "")
    assert "exif-ifd3-GPSLatitude" in original.get_fields()
    assert "icc-profile-data" in original.get_fields()
    (made,) = looking.variants(data, order(60, 60, form=form))
    private = [name for name in made.get_fields() if name.startswith(("exif", "icc", "xmp", "iptc", "png-comment"))]
    assert private == []
    assert b"somebody" not in looking.outputs((order(1, 1),))[0].read_bytes()


def test_transparent_pictures_become_white_in_jpeg(looking: Looking) -> None:
    clear = (
        pyvips.Image.black(40, 40, bands=4).linear([1] * 4, [10, 20, 30, 0]).cast("uchar").copy(interpretation="srgb")
    )
    png, jpeg = looking.variants(clear.write_to_buffer(".png"), order(20, 20), order(20, 20, form="jpeg"))
    assert png.hasalpha()
    assert jpeg(5, 5) == [255.0, 255.0, 255.0]


def test_grey_cmyk_and_deep_pictures_have_variants_of_8_bits(looking: Looking) -> None:
    base = pyvips.Image.new_from_buffer(hostile.picture(".png"), "")
    sources = [
        base.colourspace("b-w").write_to_buffer(".png"),
        base.colourspace("rgb16").write_to_buffer(".png"),
        base.colourspace("grey16").write_to_buffer(".png"),
        base.colourspace("cmyk").write_to_buffer(".jpg"),
    ]
    for data in sources:
        for image in looking.variants(data, order(40, 40), order(40, 40, form="jpeg")):
            assert image.format == "uchar"
            assert image.interpretation in ("srgb", "b-w")


@pytest.mark.parametrize("suffix", ["mp4", "mov", "webm", "mkv", "avi", "ts"])
def test_a_movie_has_size_and_duration(looking: Looking, suffix: str) -> None:
    data = hostile.movie(suffix, 3, audio=True)
    for options in ({}, {"to_the_end": True, "max_width": 64, "max_height": 48}):
        found = looking.found(data, **options)
        assert (found.width, found.height, found.reason) == (64, 48, "")
        assert found.duration_seconds == pytest.approx(3, abs=0.2)
    assert looking.found(data, max_width=63).reason == "limits"


@pytest.mark.parametrize(
    ("suffix", "turned", "size"),
    [
        ("mp4", 90, (96, 160)),
        ("mp4", -90, (96, 160)),
        ("mp4", 180, (160, 96)),
        ("mov", 90, (96, 160)),
        ("mkv", -90, (96, 160)),
        ("webm", 90, (96, 160)),
    ],
)
def test_a_movie_has_the_size_that_is_shown(looking: Looking, suffix: str, turned: int, size: tuple[int, int]) -> None:
    data = hostile.movie(suffix, 2, audio=True, width=160, height=96, turned=turned)
    for options in ({}, {"to_the_end": True}, {"max_width": size[0], "max_height": size[1]}):
        found = looking.found(data, **options)
        assert (found.width, found.height, found.reason) == (*size, ""), options
        assert found.duration_seconds == pytest.approx(2, abs=0.2)
    for options in ({"max_width": size[0] - 1}, {"max_height": size[1] - 1}):
        found = looking.found(data, **options)
        assert (found.width, found.height, found.reason) == (*size, "limits")


def test_a_movie_that_cannot_be_decoded_has_the_size_of_its_header(looking: Looking) -> None:
    """Without a limit; where there is one, a frame must confirm it."""
    whole = hostile.movie("webm")
    head = whole[: whole.index(b"\x1f\x43\xb6\x75") + 40]  # a cluster, and its first block
    data = head + b"\xff" * (len(whole) - len(head))
    found = looking.found(data)
    assert (found.width, found.height, found.reason) == (64, 48, "")
    assert looking.found(data, max_width=64).reason == "damaged"
    assert looking.found(data, max_width=63) == ("video/webm", 64, 48, None, None, (), "limits")


@pytest.mark.parametrize(
    ("suffix", "content_type"), [("mp4", "audio/mp4"), ("webm", "audio/webm"), ("mov", "audio/mp4")]
)
def test_a_movie_without_pictures_is_audio(looking: Looking, suffix: str, content_type: str) -> None:
    found = looking.found(hostile.movie(suffix, audio=True, width=0))
    assert (found.content_type, found.width, found.height) == (content_type, None, None)


def test_a_duration_that_the_header_forges_is_read_from_the_packets(looking: Looking) -> None:
    data = hostile.movie("mp4", 10)
    assert looking.found(hostile.forged_duration(data, 1)).duration_seconds == pytest.approx(1)
    for claimed in (1, 100_000):
        forged = hostile.forged_duration(data, claimed)
        assert looking.found(forged, to_the_end=True).duration_seconds == pytest.approx(10)


@pytest.mark.parametrize("suffix", ["mp4", "mov", "avi"])
def test_half_a_movie_is_damaged(looking: Looking, suffix: str) -> None:
    data = hostile.movie(suffix)
    assert looking.found(data[: len(data) // 2], to_the_end=True).reason == "damaged"


@pytest.mark.parametrize("suffix", ["webm", "mkv", "ts"])
def test_half_a_movie_that_can_be_played_lasts_as_long_as_it_plays(looking: Looking, suffix: str) -> None:
    data = hostile.movie(suffix, 4)
    duration = looking.found(data[: len(data) // 2], to_the_end=True).duration_seconds
    assert duration is not None
    assert 0 < duration < 3


def test_the_process_is_not_believed() -> None:
    good = '["image/png", 1, 1, 1, null, [], ""]'
    assert found_of(good.encode()).width == 1
    for bad in (
        "", "[]", "{}", "null", '["image/png"]', good.replace("1, 1, 1", '"1", 1, 1'),
        good.replace("1, 1, 1", "-1, 1, 1"), good.replace("1, 1, 1", "99999999999, 1, 1"), good.replace("null", "-1"),
        good.replace("null", "NaN"),
        good.replace("null", "Infinity"), good.replace("[]", "[[0, 1]]"), good.replace("[]", "[[1]]"),
        good.replace("[]", "[1]"), good.replace('""', '"no reason"'), good.replace("image/png", "x" * 200),
        good.replace("1, 1, 1", "true, 1, 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^(no |Expecting)"):
            found_of(bad.encode())
