"""Addresses that the edge serves: of ports in machines, sandboxes, pages and the CDN, each by a template or a URL.
Imports no Django.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

PLACEHOLDER = "{hash}"
TEMPLATE = re.compile(r"https?://\{hash\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")
HASH_LENGTH = 20
# In front of the hash stands the port's slug, if it has one. A label has 63 characters at most.
SLUG_LENGTH = 63 - 1 - HASH_LENGTH
_LABEL = re.compile(rf"(?:([a-z0-9](?:[a-z0-9-]{{0,{SLUG_LENGTH - 2}}}[a-z0-9])?)-)?([a-z2-7]{{{HASH_LENGTH}}})")


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """A parsed template. `suffix` is the host name after its first label, with the dot."""

    scheme: str
    suffix: str
    port: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raise ValueError with a message for the operator."""
        if not TEMPLATE.fullmatch(template):
            raise ValueError("Give an address such as https://{hash}.apps.example.org, lowercase, without a path.")
        parts = urlsplit(template.replace(PLACEHOLDER, "hash"))
        return cls(parts.scheme, (parts.hostname or "").removeprefix("hash"), f":{parts.port}" if parts.port else "")

    def domain(self, label: str) -> str:
        """Return the name of one port."""
        return f"{label}{self.suffix}"

    def url(self, label: str) -> str:
        """Return its address."""
        return f"{self.scheme}://{label}{self.suffix}{self.port}"

    def label_of(self, host: str) -> tuple[str, str] | None:
        """Return slug (empty: none) and hash that a request's host names, None for every other name."""
        name = host.lower().removesuffix(".")
        if not name.endswith(self.suffix):
            return None
        found = _LABEL.fullmatch(name.removesuffix(self.suffix))
        return (found[1] or "", found[2]) if found else None


@lru_cache(maxsize=4)
def public_address(template: str) -> PublicAddress:
    """Return what `PublicAddress.of` returns."""
    return PublicAddress.of(template)


def both_forms(host: str, port: int) -> str:
    """Return addresses of a site of the edge by HTTP: the host as it is, and with a dot at its end. By https Caddy
    takes no such name; there one leads to the other (`edge.certificate_sites`).
    """
    return f"http://{host}:{port}, http://{host}.:{port}"


def is_port_label(text: str) -> bool:
    """Return whether the first label of a name could be that of a port."""
    return _LABEL.fullmatch(text) is not None


def label(slug: str, hash_: str) -> str:
    """Return the first label of a port's name."""
    return f"{slug}-{hash_}" if slug else hash_


ID = "{id}"
# Below the path of the base URL; config/urls.py and the Caddyfile have it, too.
SANDBOX_PATH = "/s/"
# The part before the path is the base URL, which has checks of its own.
BY_PATH = re.compile(r"[^\s{}]+/s/\{id\}")
BY_HOST = re.compile(r"https?://\{id\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class SandboxAddress:
    """A parsed template. `suffix`: by host, what follows the label in the host name, with the dot; else empty."""

    template: str
    suffix: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raise ValueError with a message for the operator."""
        if BY_HOST.fullmatch(template):
            host = urlsplit(template.replace(ID, "id")).hostname or ""
            return cls(template, host.removeprefix("id"))
        if not BY_PATH.fullmatch(template):
            raise ValueError("Give an address such as https://vm.example.org/s/{id} or https://{id}.apps.example.org.")
        return cls(template, "")

    def url(self, sandbox_id: str) -> str:
        """Return the address of one sandbox, without a slash at its end."""
        name = sandbox_id.replace("_", "-") if self.suffix else sandbox_id
        return self.template.replace(ID, name)


@lru_cache(maxsize=4)
def sandbox_address(template: str) -> SandboxAddress:
    """Return what `SandboxAddress.of` returns."""
    return SandboxAddress.of(template)


# Below the path of the base URL, as that of sandboxes.
RUNTIME_PATH = "/r/"
RUNTIME_BY_PATH = re.compile(r"[^\s{}]+/r(/\{id\})?")
RUNTIME_BY_HOST = re.compile(r"https?://(\{id\}\.)?[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class RuntimeAddress:
    """A parsed address of the data plane of workspaces. `host`: by host, its name, less the label of a workspace and
    the dot behind it; else empty. `by_label`: whether each workspace has a label of its own there.
    """

    template: str
    host: str
    by_label: bool

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse an address. Raise ValueError with a message for the operator."""
        if RUNTIME_BY_PATH.fullmatch(template):
            return cls(template, "", by_label=False)
        if not RUNTIME_BY_HOST.fullmatch(template):
            raise ValueError("Give an address such as https://vm.example.org/r or https://runtime.example.org.")
        host = urlsplit(template.replace(f"{ID}.", "")).hostname or ""
        return cls(template, host, by_label=ID in template)

    def url(self, workspace_id: str) -> str:
        """Return the address for one workspace, without a slash at its end."""
        return self.template.replace(ID, workspace_id.replace("_", "-") if self.host else workspace_id)


@lru_cache(maxsize=4)
def runtime_address(template: str) -> RuntimeAddress:
    """Return what `RuntimeAddress.of` returns."""
    return RuntimeAddress.of(template)


SLUG = "{slug}"
PAGE_TEMPLATE = re.compile(r"https?://\{slug\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class PageAddress:
    """A parsed template. `domain` is the host name after its first label, without the dot."""

    template: str
    domain: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raise ValueError with a message for the operator."""
        if not PAGE_TEMPLATE.fullmatch(template):
            raise ValueError("Give addresses such as https://{slug}.pages.example.org, lowercase, without a path.")
        host = urlsplit(template.replace(SLUG, "slug")).hostname or ""
        return cls(template, host.removeprefix("slug."))

    def url(self, slug: str) -> str:
        """Return the address of one page."""
        return self.template.replace(SLUG, slug)

    def release_url(self, slug: str, number: int) -> str:
        """Return the address of one kept release. No slug has two hyphens in a row."""
        return self.url(f"{slug}--r{number}")


@lru_cache(maxsize=4)
def page_addresses(templates: tuple[str, ...]) -> dict[str, PageAddress]:
    """Return the addresses by domain, in the order of the templates; the first is the default one.

    Raise what `PageAddress.of` raises, and ValueError for none, and for two of one domain.
    """
    found = [PageAddress.of(template) for template in templates]
    by_domain = {address.domain: address for address in found}
    if not found or len(by_domain) < len(found):
        raise ValueError("Give at least one address, and one for each domain.")
    return by_domain


def default_domain(templates: tuple[str, ...]) -> str:
    """Return the domain of pages which name none."""
    return next(iter(page_addresses(templates)))


def page_url(templates: tuple[str, ...], domain: str, slug: str) -> str:
    """Return the address of a page; also in a domain that is no setting any more."""
    address = page_addresses(templates).get(domain)
    return address.url(slug) if address else f"https://{slug}.{domain}"


CDN_URL = re.compile(r"https?://[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*(:\d{1,5})?/?")


@dataclass(frozen=True, slots=True)
class CdnAddress:
    """A parsed address. `port` with its colon, empty if it is the scheme's own."""

    scheme: str
    host: str
    port: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse an address. Raise ValueError with a message for the operator."""
        if not CDN_URL.fullmatch(url):
            raise ValueError("Give an address such as https://cdn.example.org, lowercase, without a path.")
        parts = urlsplit(url)
        return cls(parts.scheme, parts.hostname or "", f":{parts.port}" if parts.port else "")

    def url(self, path: str) -> str:
        """Return the address of a path without a slash in front."""
        return f"{self.scheme}://{self.host}{self.port}/{path}"


@lru_cache(maxsize=4)
def cdn_address(url: str) -> CdnAddress:
    """Return what `CdnAddress.of` returns."""
    return CdnAddress.of(url)
