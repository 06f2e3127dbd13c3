"""How lines of logs look (PLATFORM_LOG_FORMAT). Without Django, for servers that write before they load it."""

from __future__ import annotations

from typing import Any

LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(context)s] %(message)s"
JSON_FORMATTER = {"()": "common.log_json.JsonLines"}
FORMATS = ("line", "json")


def server_logging(log_format: str, logger: str) -> dict[str, Any]:
    """For `logging.config.dictConfig`: lines of this logger alone, which name no request."""
    line = {"()": "logging.Formatter", "fmt": LINE_FORMAT, "defaults": {"context": "-"}}
    return {
        "formatters": {"one": JSON_FORMATTER if log_format == "json" else line},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "one"}},
        "loggers": {logger: {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
    }
