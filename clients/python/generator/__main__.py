"""`manage.py spectacular --format openapi-json | python -m clients.python.generator`, which is `make client`."""

from __future__ import annotations

import json
import sys

from clients.python.generator.modules import generated_modules, write_modules

if __name__ == "__main__":
    write_modules(generated_modules(json.load(sys.stdin)))
