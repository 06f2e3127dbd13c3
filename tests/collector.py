"""A receiver of traces on this host, as PLATFORM_TRACES_ENDPOINT names one."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Takes OTLP over HTTP. `spans` are those it got; `status` is what it answers; `hold` keeps it from answering."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.instances: dict[bytes, str] = {}  # by the id of a span
        self.status = 200
        self.hold = threading.Event()
        self.hold.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.hold.wait(30)
                if collector.status == 200:
                    collector.take(self.path, body)
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {item.key: item.value.string_value for item in group.resource.attributes}
            self.resources.append(resource)
            for scope in group.scope_spans:
                self.spans.extend(scope.spans)
                self.instances.update({span.span_id: resource["service.instance.id"] for span in scope.spans})

    def named(self, name: str) -> Any:
        found = [span for span in self.spans if span.name == name]
        assert found, [span.name for span in self.spans]
        return found[0]


def attributes_of(span: Any) -> dict[str, Any]:
    return {item.key: item.value.string_value or item.value.int_value for item in span.attributes}
