"""The generator of Caddy's configuration from the template beside this file. Imports no Django: it runs before the
processes start.

The configuration is static on purpose: any change would cut every proxied WebSocket and event stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template, ascii_lowercase
from typing import Protocol
from urllib.parse import urlsplit

from common.edge_header import edge_secret
from edge.addresses import PublicAddress, both_forms
from edge.cdn_site import cdn_site, upload_snippets
from edge.certificate_sites import certificate_options, certificate_sites, challenge_snippet
from edge.custom_sites import custom_plain_site, custom_snippets
from edge.join_site import join_site
from edge.page_sites import page_sites, page_snippets
from edge.pages import page
from edge.port_links import edge_patterns
from edge.route_cache import route_cache_folder
from edge.runtime_site import runtime_site

TEMPLATE = Path(__file__).with_name("Caddyfile.template")
CLOSED = "The workspace runs, but nothing answers on this port."
CUT_OFF = "The request body ended before it was complete, or its chunks are malformed."
# If the platform's own site has a port to itself, requests for every host reach it: names of users first. Any other
# name that is not the platform's is an unknown page.
OWN_DOMAINS = """\
import acme_challenge
		import plain_host
		import custom_name
		handle @custom {{
			import custom_serve
		}}
		@foreign {foreign}
		handle @foreign {{
			import request_id_shown
			vars custom none
			error 404
		}}"""
OWN_DOMAIN_ERRORS = """\
@custom_failed vars custom name port none
		handle @custom_failed {
			import custom_errors
		}"""
CALLER = "vars caller {remote_host}"
# As X-Forwarded-For, which Caddy makes the same way, but of which headers may have more than one.
CALLER_BEHIND_PROXY = """\
@forwarded {
		remote_ip private_ranges
		header X-Forwarded-For *
	}
	@direct not {
		remote_ip private_ranges
		header X-Forwarded-For *
	}
	vars @forwarded caller "{http.request.header.X-Forwarded-For}, {remote_host}"
	vars @direct caller {remote_host}"""


class EdgeSettings(Protocol):
    """The settings of the platform from which the Caddyfile is made."""

    state: Path
    bind: str
    port: int
    base_url: str
    public_url: str
    public_certificate: str
    public_key: str
    pages_url: tuple[str, ...]
    pages_certificate: str
    pages_key: str
    runtime_url: str
    cdn_url: str
    cdn_certificate: str
    cdn_key: str
    cdn_s3_bucket: str
    cdn_s3_endpoint: str
    cdn_s3_addressing: str
    domains_http_port: int
    domains_https_port: int
    domains_keys_port: int
    behind_proxy: bool
    allowed_hosts: tuple[str, ...]
    private_port: int
    body_limit_bytes: int
    secret_key: str

    @property
    def cdn_types(self) -> Mapping[str, str]:
        """Return content types of the CDN's files by extension."""


def caddyfile(settings: EdgeSettings, run_dir: Path) -> str:
    """Return the Caddyfile of an instance; the upstream sockets are in `run_dir`. It contains a secret.

    Raise ValueError if the public URL, an address of pages or that of the CDN cannot be served.
    """
    public = PublicAddress.of(settings.public_url)
    # Behind another proxy its X-Forwarded-* are kept; from other clients they are replaced.
    forwarded = "" if settings.behind_proxy else "request_header -X-Forwarded-*"
    made = Template(TEMPLATE.read_text()).substitute(
        address=_site_address(settings),
        machines=_machines_address(settings),
        suffix=re.escape(public.suffix),
        # Labels are counted from the right, from 0.
        label=f"{{http.request.host.labels.{public.suffix.count('.')}}}",
        body_limit=settings.body_limit_bytes,
        body_buffer=settings.body_limit_bytes + 1,
        above_body_limit=f"^0*({numbers_above(settings.body_limit_bytes)})$",
        routes=route_cache_folder(run_dir),
        certificate=_certificate(settings),
        bind=settings.bind,
        base_host=urlsplit(settings.base_url).hostname,
        secret=edge_secret(settings.secret_key),
        lower_case="\n\t\t".join(f"request_header Host {letter.upper()} {letter}" for letter in ascii_lowercase),
        snippets="".join(
            (page_snippets(run_dir), challenge_snippet(settings), custom_snippets(settings), upload_snippets())
        ),
        own_domains="" if _https(settings) else OWN_DOMAINS.format(foreign=_foreign(settings)),
        own_domain_errors="" if _https(settings) else OWN_DOMAIN_ERRORS,
        certificate_options=certificate_options(settings),
        automatic_https="" if _https(settings) else "auto_https off",
        caller=CALLER_BEHIND_PROXY if settings.behind_proxy else CALLER,
        trusted_proxies="trusted_proxies private_ranges" if settings.behind_proxy else "",
        forwarded=forwarded,
        static=f"{settings.state}/static",
        api=f"unix/{run_dir}/api.sock",
        streams=f"unix/{run_dir}/streams.sock",
        closed=CLOSED,
        cut_off=CUT_OFF,
        closed_page=page("Nothing answers on this port", CLOSED),
        **edge_patterns(),
    )
    plain = custom_plain_site(settings, api_by_http=not _https(settings))
    sites = page_sites(settings) + cdn_site(settings, run_dir) + runtime_site(settings)
    return made + sites + plain + certificate_sites(settings, run_dir) + join_site(settings, run_dir, forwarded)


def _foreign(settings: EdgeSettings) -> str:
    """Return the matcher of hosts that the platform does not answer for, as Django reads its list of those that it
    does.
    """
    if "*" in settings.allowed_hosts:
        return "not path *"
    names = "|".join(map(_host_pattern, settings.allowed_hosts))
    return f"not vars_regexp {{http.request.host}} (?i)^(?:{names})\\.?$"


def _host_pattern(allowed: str) -> str:
    """Return the pattern of a host: `.example.org` is the name and all below it. Caddy's name of an IPv6 address may
    have brackets or none.
    """
    if allowed.startswith("["):
        return rf"\[?{re.escape(allowed.strip('[]'))}\]?"
    return rf"(?:.*\.)?{re.escape(allowed[1:])}" if allowed.startswith(".") else re.escape(allowed)


def _https(settings: EdgeSettings) -> bool:
    return urlsplit(settings.base_url).scheme == "https" and not settings.behind_proxy


def _site_address(settings: EdgeSettings) -> str:
    """Return the site's address: Caddy serves an https base URL with a certificate of its own; else plain HTTP on the
    port.
    """
    if _https(settings):
        return f"https://{urlsplit(settings.base_url).netloc}"
    return f"http://:{settings.port}"


def _machines_address(settings: EdgeSettings) -> str:
    public = PublicAddress.of(settings.public_url)
    if _public_https(settings):
        return f"https://*{public.suffix}{public.port}"
    return both_forms(f"*{public.suffix}", settings.port)


def _public_https(settings: EdgeSettings) -> bool:
    return settings.public_url.startswith("https:") and not settings.behind_proxy


def _certificate(settings: EdgeSettings) -> str:
    """Return the line of the certificate. One for every name below a domain takes a DNS provider's help, so it comes as
    files.
    """
    if not _public_https(settings):
        return ""
    files = [settings.public_certificate, settings.public_key]
    if not all(files):
        raise ValueError(
            "PLATFORM_PUBLIC_CERTIFICATE and PLATFORM_PUBLIC_KEY must name files, because PLATFORM_PUBLIC_URL is https."
        )
    return f"tls {files[0]} {files[1]}"


def numbers_above(limit: int) -> str:
    """Return a regular expression for the decimal numbers above a limit, without leading zeros. Caddy has no quicker
    test.
    """
    digits = str(limit)
    larger = [
        f"{digits[:place]}[{int(digit) + 1}-9][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return "|".join([f"[1-9][0-9]{{{len(digits)},}}", *larger])
