"""Checks of the doctor: whether the CDN's host is used for nothing else, and whether files can be stored."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from cdn.storage.stores import store_file
from edge.addresses import cdn_address, page_addresses, public_address

Line = tuple[str, bool, str, str]
HOST = "host of the CDN"
STORE = "store of the CDN"


def delivery_lines() -> Iterator[Line]:
    """Yield the lines, each with name, whether it is as it should be, message, fix."""
    yield host_line(settings.BASE_URL, settings.ENV.cdn_url)
    yield store_line()


def host_line(base_url: str, cdn_url: str) -> Line:
    """Return whether the host is right.

    Nothing else may be served under its name, and users may not be able to get that name.
    """
    host, env = cdn_address(cdn_url).host, settings.ENV
    if host == urlsplit(base_url).hostname:
        return HOST, False, f"{host} is the host of the platform itself", "choose another name for PLATFORM_CDN_URL"
    label, _, domain = host.partition(".")
    if domain in page_addresses(env.pages_url) and label != "cdn":
        fix = "name it cdn, which no page can have, or choose another domain"
        return HOST, False, f"{host} is a name that a page can have", fix
    if public_address(env.public_url).label_of(host):
        return HOST, False, f"{host} is a name that a port can have", "choose another name for PLATFORM_CDN_URL"
    return HOST, True, f"{host}, a name of its own", ""


def store_line() -> Line:
    """Return whether the disk or the bucket can store files."""
    bucket = settings.ENV.cdn_s3_bucket
    try:
        problem = store_file().problem()
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    if problem:
        fix = "check PLATFORM_CDN_S3_*" if bucket else "put all of STATE/cdn on one disk that can be written"
        return STORE, False, problem, fix
    return STORE, True, f"the bucket {bucket}" if bucket else "the local disk", ""
