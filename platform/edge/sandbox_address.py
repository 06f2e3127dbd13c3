"""Addresses of sandboxes, by one template: by path (`https://vm.example.org/s/{id}`) or by host
(`https://{id}.apps.example.org`). Imports no Django.

The edge serves both kinds, whichever the template shows: by path below the base URL, by host below the domain of the
public ports. A host name has no `_`, so that the label of the sandbox `sbx_2kq7...` is `sbx-2kq7...`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

PLACEHOLDER = "{id}"
# Below the path of the base URL; config/urls.py and the Caddyfile have it, too.
PATH = "/s/"
# What is before the path is the base URL, which has checks of its own.
BY_PATH = re.compile(r"[^\s{}]+/s/\{id\}")
BY_HOST = re.compile(r"https?://\{id\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class SandboxAddress:
    """A parsed template. `suffix`: by host, what follows the label in the host name, with the dot; else empty."""

    template: str
    suffix: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raises ValueError with a message for the operator."""
        if BY_HOST.fullmatch(template):
            host = urlsplit(template.replace(PLACEHOLDER, "id")).hostname or ""
            return cls(template, host.removeprefix("id"))
        if not BY_PATH.fullmatch(template):
            raise ValueError("Give an address such as https://vm.example.org/s/{id} or https://{id}.apps.example.org.")
        return cls(template, "")

    def url(self, sandbox_id: str) -> str:
        """The address of one sandbox, without a slash at its end."""
        name = sandbox_id.replace("_", "-") if self.suffix else sandbox_id
        return self.template.replace(PLACEHOLDER, name)


@lru_cache(maxsize=4)
def sandbox_address(template: str) -> SandboxAddress:
    """As `SandboxAddress.of`."""
    return SandboxAddress.of(template)
