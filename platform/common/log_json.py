"""Log lines as JSON objects, one a line (PLATFORM_LOG_FORMAT=json)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.json import JsonFormatter

_IDS = ("request_id", "operation_id", "workspace_id", "trace_id", "span_id")


class JsonLines(JsonFormatter):
    """`time` (UTC, to the millisecond), `level`, `logger`, `message`, the ids that there are, `process`; `exc_info`."""

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {"time": at, "level": record.levelname, "logger": record.name, "process": record.process}
        log_data["message"] = record.getMessage()
        log_data |= {name: found for name in _IDS if (found := getattr(record, name, ""))}
        if record.exc_info:
            log_data["exc_info"] = self.formatException(record.exc_info)
