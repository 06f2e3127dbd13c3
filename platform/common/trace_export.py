"""The part of common/traces.py that imports OpenTelemetry; loaded only if traces are on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import Any

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

logger = logging.getLogger(__name__)

# Time limits of one request to the collector, with its repetitions; they hold up only the thread that sends.
EXPORT_SECONDS = 5.0
END_SECONDS = 2.0
_KINDS = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "consumer": trace.SpanKind.CONSUMER,
}
_propagator = TraceContextTextMapPropagator()


class Traces:
    """The spans of this process. Its threads are made again in a forked child."""

    def __init__(self) -> None:
        env = settings.ENV
        resource = Resource.create(
            {
                "service.name": "microvm-workspaces",
                "service.instance.id": f"{env.instance}/{env.host_name}/{env.role or 'command'}",
            }
        )
        sampler = ParentBased(TraceIdRatioBased(env.traces_share))
        # Its own handler at exit would wait for a slow collector.
        self._provider = TracerProvider(resource=resource, sampler=sampler, shutdown_on_exit=False)
        exporter = ReportedExporter(OTLPSpanExporter(endpoint=env.traces_endpoint, timeout=EXPORT_SECONDS))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("microvm-workspaces")
        # Also if a worker of granian ends, which runs no handlers of atexit.
        self._at_exit = Finalize(None, self.end, exitpriority=0)

    @contextmanager
    def span(self, name: str, kind: str, parent: str, attributes: Mapping[str, str | int]) -> Iterator[trace.Span]:
        """See traces.span."""
        context = _propagator.extract({"traceparent": parent}, Context()) if parent else None
        with self._tracer.start_as_current_span(
            name,
            context,
            _KINDS[kind],
            attributes=_named(attributes),
            # A message may say what a user has sent.
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            try:
                yield made
            except BaseException as error:
                _fail(made, type(error).__name__)
                raise

    def set_outcome(self, attributes: Mapping[str, str | int]) -> None:
        """See traces.set_outcome."""
        current = trace.get_current_span()
        current.set_attributes(_named(attributes))
        if "error_type" in attributes:
            _fail(current, str(attributes["error_type"]))

    def current_ids(self) -> tuple[str, str]:
        """See traces.current_ids."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return "", ""
        return trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)

    def is_sampled(self) -> bool:
        """Return whether the trace of this context is sent."""
        return trace.get_current_span().get_span_context().trace_flags.sampled

    def end(self) -> None:
        """Send what waits; give up after two seconds. Idempotent."""
        self._at_exit.cancel()
        ending = threading.Thread(target=self._provider.shutdown, name="end-of-traces", daemon=True)
        ending.start()
        ending.join(END_SECONDS)


class ReportedExporter(SpanExporter):
    """One line when the collector is away, one when it is back; the library would write one for each batch."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch, which is dropped if that fails."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            logger.debug("spans could not be sent: %s", error)
            result = SpanExportResult.FAILURE
        is_away = result is not SpanExportResult.SUCCESS
        if is_away and not self._is_away:
            logger.warning("the collector of traces does not accept spans: they are dropped until it does")
        elif self._is_away and not is_away:
            logger.info("the collector of traces accepts spans again")
        self._is_away = is_away
        return result

    def shutdown(self) -> None:
        """End waits for a collector that does not answer."""
        self._exporter.shutdown()


def _named(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return the attributes by their names: `operation_id` is `platform.operation_id`; names of OpenTelemetry's own are
    given with their dots.
    """
    return {name if "." in name else f"platform.{name}": value for name, value in attributes.items()}


def _fail(span: Any, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR)
