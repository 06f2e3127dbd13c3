"""How much a run tests: `make test-all` sets TEST_ALL and so has the long versions, which docs/testing.md lists."""

from __future__ import annotations

import os

WHOLE = bool(os.environ.get("TEST_ALL"))
