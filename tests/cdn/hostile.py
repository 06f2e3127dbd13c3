"""Files that were made to harm: what claims more than it is, what names other files, what is several things at once.

And whole ones of each type to break. All are made here; none is stored in the repository.
"""

from __future__ import annotations

import io
import struct
import wave
import zipfile
import zlib
from fractions import Fraction
from functools import cache
from typing import Any

import av
import pyvips

PLAYLIST = (
    "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{url}/first.ts\n#EXTINF:1,\n{url}/second.ts\n"
)
SCRIPT_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" height="9">'
    '<script>fetch("{url}/script")</script><image xlink:href="{url}/image.png" width="9" height="9"/>'
    '<image xlink:href="file:///etc/passwd" width="9" height="9"/></svg>'
)


def picture(suffix: str, width: int = 320, height: int = 200, **options: object) -> bytes:
    """A whole picture with noise, so that its data is not tiny."""
    noise = pyvips.Image.gaussnoise(width, height, mean=128, sigma=40).cast("uchar")
    made = noise.bandjoin([noise.rot180(), noise]).copy(interpretation="srgb")
    return bytes(made.write_to_buffer(suffix, **options))


def animation(suffix: str, frames: int, width: int = 16, height: int = 16) -> bytes:
    """Each frame differs from the one before."""
    shown = [pyvips.Image.gaussnoise(width, height, mean=128, sigma=60, seed=number) for number in range(frames)]
    grey = pyvips.Image.arrayjoin(shown, across=1).cast("uchar")
    made = grey.bandjoin([grey, grey]).copy(interpretation="srgb")
    made.set_type(pyvips.GValue.gint_type, "page-height", height)
    return bytes(made.write_to_buffer(suffix))


def png(width: int, height: int, lines: bytes, colour: int = 0, depth: int = 1) -> bytes:
    """Header and pixel data need not fit each other."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", lines) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def huge_png() -> bytes:
    """900 megapixels in 110 kB, all of them there."""
    side, packer = 30_000, zlib.compressobj(9)
    line = bytes(1 + side // 8)
    return png(side, side, b"".join([*(packer.compress(line) for _ in range(side)), packer.flush()]))


def false_png() -> bytes:
    """The header says 6000 x 6000, the data are those of 8 x 8."""
    return png(6000, 6000, zlib.compress(bytes(2) * 8))


def inflating_png() -> bytes:
    """A text chunk that unpacks to 256 MiB."""
    packer = zlib.compressobj(9)
    packed = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(256)), packer.flush()])
    whole = png(8, 8, zlib.compress(bytes(2) * 8))
    return whole[:33] + _chunk(b"zTXt", b"name\0\0" + packed) + _chunk(b"iCCP", b"name\0\0" + packed) + whole[33:]


def long_gif(frames: int = 10_000) -> bytes:
    """Frames of one pixel."""
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    frame = (
        b"\x21\xf9\x04\x00\x01\x00\x00\x00" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    )
    return head + frame * frames + b";"


@cache
def zip_bomb() -> bytes:
    """A gigabyte of zeros in a megabyte."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("zeros", "w") as file,
    ):
        for _ in range(1024):
            file.write(bytes(1 << 20))
    return made.getvalue()


def polyglot() -> bytes:
    """A GIF that is a script and a ZIP archive as well: `GIF89a/*...*/=1;alert(1)//...PK`."""
    width = struct.unpack("<H", b"/*")[0]
    head = b"GIF89a" + struct.pack("<HHBBB", width, 1, 0, 0, 0)
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0x80) + bytes(6) + b"\x02\x02\x44\x01\x00;"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("x", "x")
    return head + image + b"*/=1;alert(1)//" + archive.getvalue()


def entity_bomb_svg() -> bytes:
    """A gigabyte of text, were the entities to be replaced."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return (
        f'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY e0 "0123456789">{entities}]>'
        '<svg xmlns="http://www.w3.org/2000/svg"><text>&e9;</text></svg>'
    ).encode()


def movie(
    suffix: str = "mp4", seconds: int = 2, *, audio: bool = False, width: int = 64, height: int = 48, turned: int = 0
) -> bytes:
    """10 frames a second; with `audio` silence beside them, without `width` silence alone. `turned`: degrees by which
    players turn it.
    """
    made = io.BytesIO()
    formats = {"mp4": "mp4", "webm": "webm", "mkv": "matroska", "avi": "avi", "ts": "mpegts", "mov": "mov"}
    with av.open(made, "w", format=formats[suffix]) as container:
        video = _video_stream(container, suffix, width, height) if width else None
        if video is not None and turned:
            video.set_display_rotation(turned)
        sound = container.add_stream("libopus" if suffix == "webm" else "aac", rate=48_000) if audio else None
        if video is not None:
            _fill_video(container, video, seconds)
        if sound is not None:
            _fill_audio(container, sound, seconds)
    return made.getvalue()


def _video_stream(container: Any, suffix: str, width: int, height: int) -> Any:
    stream = container.add_stream("libvpx" if suffix == "webm" else "mpeg4", rate=10)
    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
    return stream


def _fill_video(container: Any, stream: Any, seconds: int) -> None:
    for number in range(seconds * 10):
        frame = av.VideoFrame(stream.width, stream.height, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes([number * 7 % 256]) * plane.buffer_size)
        frame.pts, frame.time_base = number, Fraction(1, 10)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def _fill_audio(container: Any, stream: Any, seconds: int) -> None:
    wanted, size = stream.codec_context, 960
    resampler = av.AudioResampler(wanted.format, wanted.layout, wanted.rate, frame_size=wanted.frame_size or size)
    for number in range(seconds * 48_000 // size):
        frame = av.AudioFrame(format="s16", layout="mono", samples=size)
        frame.planes[0].update(bytes(frame.planes[0].buffer_size))
        frame.sample_rate, frame.pts, frame.time_base = 48_000, number * size, Fraction(1, 48_000)
        for resampled in resampler.resample(frame):
            container.mux(stream.encode(resampled))
    container.mux(stream.encode(None))


def sound(seconds: float = 1.0) -> bytes:
    """A WAV of silence."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(bytes([128]) * int(8000 * seconds))
    return made.getvalue()


def forged_duration(data: bytes, seconds: int) -> bytes:
    """An MP4 whose headers (`mvhd`, `tkhd`, `mdhd`) claim another duration; the table of samples stays."""
    made = bytearray(data)
    scale = struct.unpack_from(">I", made, data.index(b"mvhd") + 16)[0]
    struct.pack_into(">I", made, data.index(b"mvhd") + 20, scale * seconds)
    at = data.find(b"tkhd")
    while at >= 0:
        struct.pack_into(">I", made, at + 24, scale * seconds)
        at = data.find(b"tkhd", at + 4)
    at = data.find(b"mdhd")
    while at >= 0:
        struct.pack_into(">I", made, at + 20, struct.unpack_from(">I", made, at + 16)[0] * seconds)
        at = data.find(b"mdhd", at + 4)
    return bytes(made)


def movie_elsewhere(url: str) -> bytes:
    """An MP4 that says that its samples lie in another file (`dref` with a URL), not in this one."""
    data = bytearray(movie("mp4"))
    at = data.index(b"dref") - 4
    old = struct.unpack_from(">I", data, at)[0]
    place = b"\0\0\0\0" + url.encode() + b"\0"
    entry = struct.pack(">I", 8 + len(place)) + b"url " + place
    made = struct.pack(">I", 16 + len(entry)) + b"dref" + bytes(4) + struct.pack(">I", 1) + entry
    data[at : at + old] = made
    for name in (b"dinf", b"minf", b"mdia", b"trak", b"moov"):
        where = data.index(name) - 4
        struct.pack_into(">I", data, where, struct.unpack_from(">I", data, where)[0] + len(made) - old)
    return bytes(data)
