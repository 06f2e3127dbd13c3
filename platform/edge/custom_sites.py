"""The part of Caddy's configuration for domains of users. Imports no Django."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Protocol
from urllib.parse import urlsplit

from edge.domain_files import NAME, domains_folder

_SNIPPETS = Path(__file__).with_name("CustomDomains.template")
# Once a certificate is there. Behind a proxy the request may have come by https.
_SECURE = """\
@custom_plain {{
			protocol http
			{unless}
			vars_regexp {{http.request.uri}} ^/
			file {{
				root {domains}/tls
				try_files /{{vars.custom_name}}
			}}
		}}
		redir @custom_plain https://{{vars.custom_name}}{{uri}} 308"""
_PLAIN_SITE = """
# By HTTP: until there is a certificate, and for the questions of the certificate authority.
http://:{port} {{
	bind {bind}
	import acme_challenge
	import custom_domain
}}
"""


class CustomSettings(Protocol):
    """The settings of the platform from which these sites are made."""

    state: Path
    bind: str
    port: int
    base_url: str
    behind_proxy: bool
    domains_http_port: int
    domains_https_port: int


def custom_snippets(settings: CustomSettings) -> str:
    """Return the snippets `custom_name`, `custom_serve`, `custom_errors` and `custom_domain`."""
    return Template(_SNIPPETS.read_text()).substitute(
        name=NAME,
        domains=domains_folder(settings.state),
        base_host=urlsplit(settings.base_url).hostname,
        secure=_secure(settings),
    )


def _secure(settings: CustomSettings) -> str:
    if not settings.domains_https_port:
        return ""
    unless = "not header X-Forwarded-Proto https" if settings.behind_proxy else ""
    return _SECURE.format(unless=unless, domains=domains_folder(settings.state))


def custom_plain_site(settings: CustomSettings, *, api_by_http: bool) -> str:
    """Return the site of the HTTP port; none if the platform's own site, which serves these names too, has that
    port.
    """
    if not settings.domains_http_port or (api_by_http and settings.domains_http_port == settings.port):
        return ""
    return _PLAIN_SITE.format(port=settings.domains_http_port, bind=settings.bind)
