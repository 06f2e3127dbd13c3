"""Types of files: the kind that a policy knows, the ending of the name, and whether a browser may show it. Free of
Django.

An extension stands for one type only: the edge finds the Content-Type of a file by it.
"""

from __future__ import annotations

from dataclasses import dataclass

IMAGE, VIDEO, AUDIO, DOCUMENT, OTHER = KINDS = ("image", "video", "audio", "document", "other")
UNKNOWN_TYPE = "application/octet-stream"
UNKNOWN_EXTENSION = "bin"
TEXT = "text/"
# Prefix for the extension of text whose bytes are UTF-8: the edge delivers it with its charset.
UTF8_PREFIX, UTF8 = "utf8.", "; charset=utf-8"

# fit of a variant -> what becomes of the picture (docs/operations.md, CDN).
FITS = ("contain", "cover", "fill")
# format of a variant -> its type
VARIANT_FORMATS = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp", "avif": "image/avif"}
VARIANT_SIDE_MAX = 8192


@dataclass(frozen=True, slots=True)
class FileType:
    """Type of a file. `is_inline`: browsers show it.

    Types that can run scripts, and unknown ones, are saved instead (attachment).
    """

    content_type: str
    kind: str
    extension: str
    is_inline: bool


# Types that browsers show and that run no script: "type extension".
_INLINE = {
    IMAGE: "image/jpeg jpg; image/png png; image/gif gif; image/webp webp; image/avif avif",
    VIDEO: "video/mp4 mp4; video/webm webm; video/ogg ogv; video/quicktime mov",
    AUDIO: "audio/mpeg mp3; audio/mp4 m4a; audio/aac aac; audio/ogg oga; audio/webm weba; audio/wav wav; "
    "audio/flac flac; audio/midi mid",
    DOCUMENT: "text/plain txt",
}
_ATTACHED = {
    IMAGE: "image/svg+xml svg; image/bmp bmp; image/tiff tif; image/heic heic; image/jp2 jp2; image/jxl jxl; "
    "image/x-icon ico; image/vnd.adobe.photoshop psd",
    VIDEO: "video/x-matroska mkv; video/x-msvideo avi; video/mpeg mpg; video/mp2t ts; video/x-flv flv; "
    "video/3gpp 3gp; video/x-ms-asf asf",
    AUDIO: "audio/x-aiff aif; audio/amr amr; audio/basic au; audio/x-matroska mka",
    DOCUMENT: "application/pdf pdf; text/html html; text/xml xml; text/csv csv; application/json json; "
    "text/rtf rtf; application/postscript ps; application/epub+zip epub; "
    "application/msword doc; application/vnd.ms-excel xls; application/vnd.ms-powerpoint ppt; "
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document docx; "
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet xlsx; "
    "application/vnd.openxmlformats-officedocument.presentationml.presentation pptx; "
    "application/vnd.oasis.opendocument.text odt; application/vnd.oasis.opendocument.spreadsheet ods; "
    "application/vnd.oasis.opendocument.presentation odp",
    OTHER: "application/zip zip; application/gzip gz; application/x-bzip2 bz2; application/x-xz xz; "
    "application/zstd zst; application/x-7z-compressed 7z; application/vnd.rar rar; application/x-tar tar; "
    "application/wasm wasm; font/woff woff; font/woff2 woff2; font/ttf ttf; font/otf otf; "
    f"{UNKNOWN_TYPE} {UNKNOWN_EXTENSION}",
}


def _rows(listed: dict[str, str], *, is_inline: bool) -> list[FileType]:
    pairs = [(kind, *entry.split()) for kind, entries in listed.items() for entry in entries.split("; ")]
    return [FileType(content_type, kind, extension, is_inline) for kind, content_type, extension in pairs]


TYPES = {row.content_type: row for row in [*_rows(_INLINE, is_inline=True), *_rows(_ATTACHED, is_inline=False)]}
_MAJOR_KINDS = {"image": IMAGE, "video": VIDEO, "audio": AUDIO, "text": DOCUMENT}


def file_type(content_type: str) -> FileType:
    """Return the type of this name. A type that is not listed is served as unknown bytes, and keeps its kind
    (`image/x-new`).
    """
    if content_type in TYPES:
        return TYPES[content_type]
    kind = _MAJOR_KINDS.get(content_type.partition("/")[0], OTHER)
    return FileType(UNKNOWN_TYPE, kind, UNKNOWN_EXTENSION, is_inline=False)


def content_types() -> dict[str, str]:
    """Return the type of each extension, with the charset of those that have one."""
    plain = {row.extension: row.content_type for row in TYPES.values()}
    texts = {extension: name for extension, name in plain.items() if name.startswith(TEXT)}
    return plain | {f"{UTF8_PREFIX}{extension}": f"{name}{UTF8}" for extension, name in texts.items()}


def claimed_kind(content_type: str) -> str:
    """Return the kind of a type that a client claims, with or without parameters."""
    return file_type(content_type.partition(";")[0].strip().lower()).kind


def is_inline(content_type: str) -> bool:
    """Return whether the edge serves this type to be shown; everything else is an attachment."""
    return file_type(content_type).is_inline
