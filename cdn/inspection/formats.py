"""Types that the confined process can inspect."""

from __future__ import annotations

PICTURES = frozenset(("image/jpeg", "image/png", "image/webp", "image/gif", "image/avif"))
# type -> name of PyAV's demuxer: never a playlist (hls, concat, dash), which names other files
CONTAINERS = {
    **dict.fromkeys(("video/mp4", "video/quicktime", "video/3gpp", "audio/mp4"), "mov"),
    **dict.fromkeys(("video/webm", "video/x-matroska", "audio/webm", "audio/x-matroska"), "matroska"),
    **dict.fromkeys(("video/ogg", "audio/ogg"), "ogg"),
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/aac": "aac",
    "audio/x-aiff": "aiff",
    "audio/amr": "amr",
    "video/x-msvideo": "avi",
    "video/x-flv": "flv",
    "video/mp2t": "mpegts",
    "video/mpeg": "mpeg",
}


def is_inspectable(content_type: str) -> bool:
    """Return whether anything can be found out about files of this type."""
    return content_type in PICTURES or content_type in CONTAINERS
