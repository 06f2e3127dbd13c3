"""Inspection of video and audio: streams and duration, by PyAV's demuxers. The container's format is that of the
sniffed type.
"""

from __future__ import annotations

import math
import os
from typing import Any

import av
import av.error

# PyAV imports them at the first stream of subtitles, when no file can be opened any more.
import av.subtitles.codeccontext
import av.subtitles.stream
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from cdn.inspection.formats import CONTAINERS
from cdn.inspection.limits import close_descriptors
from cdn.inspection.messages import DAMAGED, LIMITS, PIXELS, PIXELS_MAX, UNSUPPORTED, Findings, InspectionOrder

_WITHOUT_PICTURES = {
    **dict.fromkeys(("video/mp4", "video/quicktime", "video/3gpp"), "audio/mp4"),
    "video/webm": "audio/webm",
    "video/x-matroska": "audio/x-matroska",
    "video/ogg": "audio/ogg",
}
_WITH_PICTURES = {
    "audio/mp4": "video/mp4",
    "audio/webm": "video/webm",
    "audio/x-matroska": "video/x-matroska",
    "audio/ogg": "video/ogg",
}


def _refuse(url: str, flags: int, options: Any) -> Any:
    """Refuse to open another file: a file may not name others."""
    raise PermissionError(url)


_OPTIONS = {"protocol_whitelist": "file", "enable_drefs": "0"}
# Names and titles are ignored.
_OPENED: dict[str, Any] = {"io_open": _refuse, "metadata_errors": "ignore"}
_MICROSECONDS = 1_000_000
# Demuxers that read a matrix by which the film is turned.
_TURNING = ("mov", "matroska")


def inspect_container(order: InspectionOrder) -> Findings:
    """Return the findings. A file that cannot be read to its end is `damaged`."""
    if order.content_type not in CONTAINERS:
        return Findings(order.content_type, reason=UNSUPPORTED)
    file = os.fdopen(0, "rb", closefd=False)
    close_descriptors()
    try:
        with av.open(file, format=CONTAINERS[order.content_type], options=_OPTIONS, **_OPENED) as container:
            return _container_read(order, container)
    except (av.error.FFmpegError, ValueError, OSError):
        return Findings(order.content_type, reason=DAMAGED)


def _container_read(order: InspectionOrder, container: InputContainer) -> Findings:
    pictures = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not pictures and not container.streams.audio:
        return Findings(order.content_type, reason=DAMAGED)
    names = _WITH_PICTURES if pictures else _WITHOUT_PICTURES
    content_type = names.get(order.content_type, order.content_type)
    width = max((stream.width for stream in pictures), default=None)
    height = max((stream.height for stream in pictures), default=None)
    reason = ""
    if width and height:
        width, height, reason = _shown_size(order, container, pictures[0], (width, height))
    duration = None if reason else _duration(order, container)
    return Findings(content_type, width=width or None, height=height or None, duration_seconds=duration, reason=reason)


def _shown_size(
    order: InspectionOrder, container: InputContainer, stream: VideoStream, size: tuple[int, int]
) -> tuple[int, int, str]:
    """Return width and height as players show them, and the reason why they are not allowed.

    A header names the size before the film is turned, as for films of phones; the first frame says how it is turned.
    Raise ValueError if there is no frame and the size is limited.
    """
    width, height = size
    if width * height > PIXELS_MAX:
        return width, height, PIXELS
    is_limited = (order.max_width, order.max_height) != (None, None)
    if is_limited or CONTAINERS[order.content_type] in _TURNING:
        frame = _first_frame(container, stream)
        if frame is not None:
            width, height = _upright(frame, width, height)
        elif is_limited and order.allows(width, height):
            raise ValueError("no frame")
    if width * height > PIXELS_MAX:
        return width, height, PIXELS
    return width, height, "" if order.allows(width, height) else LIMITS


def _upright(frame: VideoFrame, width: int, height: int) -> tuple[int, int]:
    """Return the size of the frame, or of the header if that is more."""
    width, height = max(frame.width, width), max(frame.height, height)
    is_sideways = round(frame.rotation / 90) % 2 == 1
    return (height, width) if is_sideways else (width, height)


def _first_frame(container: InputContainer, stream: VideoStream) -> VideoFrame | None:
    """Return the first frame that decodes; the container is at its beginning then."""
    try:
        return next(container.decode(stream), None)
    except (av.error.FFmpegError, ValueError):
        return None
    finally:
        container.seek(0)


def _duration(order: InspectionOrder, container: InputContainer) -> float | None:
    if order.to_the_end:
        return _duration_of_packets(container)
    seconds = (container.duration or 0) / _MICROSECONDS
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _duration_of_packets(container: InputContainer) -> float | None:
    """Return the time from the first to the last packet of all streams; nothing is decoded."""
    first, last = math.inf, -math.inf
    for packet in container.demux():
        time = packet.pts if packet.pts is not None else packet.dts
        if time is None or packet.time_base is None:
            continue
        first = min(first, float(time * packet.time_base))
        last = max(last, float((time + (packet.duration or 0)) * packet.time_base))
    return last - first if last > first else None
