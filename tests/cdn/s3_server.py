"""A service that speaks as much of S3 as the store uses: objects, uploads in pieces, listings, signed addresses.

Signatures are verified (AWS Signature Version 4), of headers and of addresses. `fail` makes the next requests of a kind
fail, as a service does that is overloaded.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY, BUCKET, REGION = "key-of-tests", "secret-of-tests", "files-of-tests", "us-east-1"
_SAFE = "-_.~"


@dataclass
class Bucket:
    """What is stored. `requests` counts those that were answered, by method and kind."""

    objects: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    begun: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    fail: Counter[str] = field(default_factory=Counter)
    # What objects are answered with in their place: (status, headers).
    lie: tuple[int, dict[str, str]] | None = None
    largest_body: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clear(self) -> None:
        for kept in (self.objects, self.types, self.times, self.uploads, self.begun, self.requests, self.fail):
            kept.clear()
        self.largest_body, self.lie = 0, None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.bucket: Bucket = self.server.bucket  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        kind = _kind(self.command, query)
        self.bucket.largest_body = max(self.bucket.largest_body, len(body))
        if not self._is_signed(parts.path, parts.query):
            return self._send(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        self.bucket.requests[kind] += 1
        if self.bucket.fail[kind] > 0:
            self.bucket.fail[kind] -= 1
            return self._send(503, b"<Error><Code>SlowDown</Code></Error>")
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        return getattr(self, f"_{kind}")(key, query, body)

    def _get(self, key: str, query: dict[str, str], body: bytes) -> None:
        data = self.bucket.objects.get(key)
        if self.bucket.lie is not None:
            status, headers = self.bucket.lie
            return self._send(status, b"<Error><Code>Lie</Code></Error>", headers)
        if data is None:
            return self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        headers = {
            "Content-Type": self.bucket.types[key], "Accept-Ranges": "bytes", "ETag": '"of-the-store"',
            "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT", "x-amz-request-id": "1", "Cache-Control": "no-cache",
        }  # fmt: skip
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not found:
            return self._send(200, data, headers)
        if found[1]:
            first, last = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
        else:
            first, last = len(data) - int(found[2]), len(data) - 1
        if first >= len(data):
            return self._send(416, b"<Error><Code>InvalidRange</Code></Error>")
        return self._send(206, data[first : last + 1], headers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

    _head = _get

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        self._store(key, body)
        self._send(200, b"", {"ETag": '"one"'})

    def _store(self, key: str, data: bytes) -> None:
        self.bucket.objects[key] = data
        self.bucket.types[key] = self.headers.get("Content-Type", "")
        self.bucket.times[key] = datetime.now(UTC)

    def _begin(self, key: str, query: dict[str, str], body: bytes) -> None:
        number = f"upload-{len(self.bucket.begun)}"
        self.bucket.uploads[number] = {}
        self.bucket.begun[number] = (key, datetime.now(UTC))
        self.bucket.types[key] = self.headers.get("Content-Type", "")
        self._send(
            200, f"<R><UploadId>{number}</UploadId></R>".replace("R>", "InitiateMultipartUploadResult>").encode()
        )

    def _piece(self, key: str, query: dict[str, str], body: bytes) -> None:
        self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = body
        self._send(200, b"", {"ETag": f'"{query["partNumber"]}"'})

    def _complete(self, key: str, query: dict[str, str], body: bytes) -> None:
        numbers = [int(found.text or 0) for found in ElementTree.fromstring(body).iter() if "PartNumber" in found.tag]
        pieces = self.bucket.uploads.pop(query["uploadId"])
        kind = self.bucket.types[key]
        self._store(key, b"".join(pieces[number] for number in numbers))
        self.bucket.types[key] = kind
        self._send(200, b'<CompleteMultipartUploadResult><ETag>"all"</ETag></CompleteMultipartUploadResult>')

    def _abort(self, key: str, query: dict[str, str], body: bytes) -> None:
        self.bucket.uploads.pop(query["uploadId"], None)
        self._send(204, b"")

    def _delete(self, key: str, query: dict[str, str], body: bytes) -> None:
        self.bucket.objects.pop(key, None)
        self._send(204, b"")

    def _uploads(self, key: str, query: dict[str, str], body: bytes) -> None:
        rows = "".join(
            f"<Upload><Key>{escape(self.bucket.begun[number][0])}</Key><UploadId>{number}</UploadId>"
            f"<Initiated>{self.bucket.begun[number][1]:%Y-%m-%dT%H:%M:%S.000Z}</Initiated></Upload>"
            for number in self.bucket.uploads
            if self.bucket.begun[number][0].startswith(query.get("prefix", ""))
        )
        self._send(200, f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>".encode())

    def _list(self, key: str, query: dict[str, str], body: bytes) -> None:
        """Two at a time, so that there are further pages."""
        after = query.get("continuation-token", "")
        names = sorted(
            name for name in self.bucket.objects if name.startswith(query.get("prefix", "")) and name > after
        )
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.bucket.objects[name])}</Size>"
            f"<LastModified>{self.bucket.times[name]:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for name in names[:2]
        )
        more = f"<NextContinuationToken>{names[1]}</NextContinuationToken>" if len(names) > 2 else ""
        is_more = str(bool(more)).lower()
        text = f"<ListBucketResult><IsTruncated>{is_more}</IsTruncated>{more}{rows}</ListBucketResult>"
        self._send(200, text.encode())

    def _remove(self, key: str, query: dict[str, str], body: bytes) -> None:
        for found in ElementTree.fromstring(body).iter():
            if found.tag.endswith("Key"):
                self.bucket.objects.pop(str(found.text), None)
        self._send(200, b"<DeleteResult></DeleteResult>")

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/xml"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _is_signed(self, path: str, query: str) -> bool:
        given = dict(parse_qsl(query, keep_blank_values=True))
        if "X-Amz-Signature" not in given:
            return self._has_signed_headers(path, given)
        wanted = given.pop("X-Amz-Signature")
        made = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if datetime.now(UTC) > made + timedelta(seconds=int(given["X-Amz-Expires"])):
            return False
        signed = given["X-Amz-SignedHeaders"]
        return hmac.compare_digest(
            wanted, self._signature(path, given, signed, "UNSIGNED-PAYLOAD", given["X-Amz-Date"])
        )

    def _has_signed_headers(self, path: str, query: dict[str, str]) -> bool:
        found = re.search(r"SignedHeaders=([^,]+), ?Signature=(\w+)", self.headers.get("Authorization", ""))
        if not found or f"Credential={ACCESS_KEY}/" not in self.headers["Authorization"]:
            return False
        payload, date = self.headers["x-amz-content-sha256"], self.headers["x-amz-date"]
        return hmac.compare_digest(found[2], self._signature(path, query, found[1], payload, date))

    def _signature(self, path: str, query: dict[str, str], signed: str, payload: str, date: str) -> str:
        ordered = "&".join(f"{quote(key, _SAFE)}={quote(value, _SAFE)}" for key, value in sorted(query.items()))
        headers = "".join(f"{name}:{(self.headers.get(name) or '').strip()}\n" for name in signed.split(";"))
        request = "\n".join([self.command, path, ordered, headers, signed, payload])
        scope = f"{date[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{SECRET_KEY}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _kind(method: str, query: dict[str, str]) -> str:
    if method == "POST":
        return "begin" if "uploads" in query else "remove" if "delete" in query else "complete"
    if method == "PUT":
        return "piece" if "partNumber" in query else "put"
    if method == "DELETE":
        return "abort" if "uploadId" in query else "delete"
    if method == "HEAD":
        return "head"
    return "uploads" if "uploads" in query else "list" if "list-type" in query else "get"


@contextmanager
def s3_server() -> Iterator[Bucket]:
    """On a free port of this host, until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    bucket = Bucket(port=server.server_address[1])
    server.bucket = bucket  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def s3_settings(bucket: Bucket) -> dict[str, str]:
    """The settings of a platform whose store it is."""
    return {
        "PLATFORM_CDN_S3_BUCKET": BUCKET,
        "PLATFORM_CDN_S3_ENDPOINT": bucket.url,
        "PLATFORM_CDN_S3_ACCESS_KEY": ACCESS_KEY,
        "PLATFORM_CDN_S3_SECRET_KEY": SECRET_KEY,
    }
