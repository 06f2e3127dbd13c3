"""Limits of pages that a test sets."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings


def limit_settings(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=limits))
