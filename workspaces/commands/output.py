"""The output of a command in a response: as text, or byte for byte."""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from dataclasses import dataclass
from typing import Literal

from vmbackend.guest.session import ExecResult

Encoding = Literal["utf-8", "base64"]
TEXT, BASE64 = "utf-8", "base64"
ENCODINGS = (TEXT, BASE64)


@dataclass(frozen=True, slots=True)
class EncodedOutput:
    """Bytes that a command wrote. `lossy`: some bytes are not UTF-8 and were replaced in `text`."""

    text: str
    lossy: bool = False


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A finished command, both outputs in one encoding."""

    result: ExecResult
    encoding: Encoding
    stdout: str
    stderr: str
    lossy: bool


class OutputEncoder:
    """Encoder of one output that comes in parts. A character whose bytes are in two parts is sent with its last
    byte.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._is_exact = encoding == BASE64
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")

    def encode(self, data: bytes, *, final: bool = False) -> EncodedOutput:
        if self._is_exact:
            return EncodedOutput(b64encode(data).decode())
        text = self._decoder.decode(data, final)
        try:
            text.encode()
        except UnicodeEncodeError:  # a surrogate stands for each byte that is not UTF-8
            replaced = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            return EncodedOutput(replaced, lossy=True)
        return EncodedOutput(text)


def encoded_result(result: ExecResult, encoding: Encoding) -> EncodedResult:
    out, err = (OutputEncoder(encoding).encode(data, final=True) for data in (result.stdout, result.stderr))
    return EncodedResult(result, encoding, out.text, err.text, out.lossy or err.lossy)
