"""An adapter for requests whose answers have an end. The library bounds the time between two reads and nothing else: a
server that sends a byte at a time would hold a thread for good, and one that sends much would fill the memory.
"""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import Any, Final

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ContentDecodingError
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

# The most bytes of head and body together, interim answers (1xx) included. Google's answers have some hundred bytes.
MAX_ANSWER_BYTES: Final = 64 * 1024


class BoundedAdapter(HTTPAdapter):
    """The read timeout of a request is that of its whole answer, which has at most MAX_ANSWER_BYTES.

    Exceptions are those of requests. A compressed answer is refused, as it may become any number of bytes.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Called by HTTPAdapter, also after unpickling."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send as HTTPAdapter does."""
        request.headers["Accept-Encoding"] = "identity"
        answer = super().send(request, *args, **kwargs)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            answer.close()
            raise ContentDecodingError("The answer is compressed, which it was asked not to be.")
        return answer


class _Bounded(io.RawIOBase):
    """The bytes that come from a socket until the deadline. Raises TimeoutError, ConnectionError (too many bytes)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)  # keeps it open, as HTTPResponse expects
        self._until = time.monotonic() + (connection.gettimeout() or 0.0)
        self._left = MAX_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._connection.settimeout(left)
        count = self._file.readinto(memoryview(buffer)[: self._left + 1]) or 0
        self._left -= count
        if self._left < 0:
            raise ConnectionError("the answer is too long")
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_Bounded(sock))


class _Connection(HTTPConnection):
    response_class = _Answer


class _TlsConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
