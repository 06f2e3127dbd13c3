"""Custom domains of pages and of public ports: `ws pages domain` and `ws port domain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from microvm.cli.arguments import Confirmed, OptionalWorkspace, PageName, PortNumber, WaitSeconds, require_confirmation
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.session import Session, command, command_group
from microvm.errors import InvalidRequest, WaitTimeout
from microvm.types.domains import Domain

SECONDS_BETWEEN = 2.0  # looks at a certificate that is being ordered
NOT_VERIFIED = "domain_not_verified"
DomainName = Annotated[str, typer.Argument(metavar="DOMAIN", help="As shop.example.com.")]
IncludeWww = Annotated[bool, typer.Option("--include-www", help="Also `www.` before it, which leads to the domain.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for its certificate, with progress.")]
RECORDS = (
    Column("Type", lambda row: row["type"]),
    Column("Name", lambda row: row["name"]),
    Column("Wanted", lambda row: row["wanted"]),
    Column("Found", lambda row: row["found"] or "nothing"),
    Column("Right", lambda row: row["ok"]),
)
FIELDS = (
    Column("Domain", lambda row: row["domain"]),
    Column("Address", lambda row: row["url"]),
    Column("Port", lambda row: row.get("port")),
    Column("With www", lambda row: row["include_www"]),
    Column("Proven", lambda row: row["verified"]),
    Column("Certificate", lambda row: row["ssl"]["status"]),
    Column("Until", lambda row: row["ssl"]["expiresAt"]),
    Column("Error", lambda row: row["ssl"]["error"]),
)
LISTED = (
    Column("Page", lambda row: row["page"]),
    *(column for column in FIELDS if column.title in ("Domain", "Address", "Certificate", "Until", "Error")),
)


@dataclass(frozen=True)
class Target:
    """A page or a port that a domain leads to.

    `routes` has get, connect, check, disconnect and renew; `words` are its `ws` commands.
    """

    routes: Mapping[str, Callable[..., Any]]
    words: str
    name: str

    @classmethod
    def page(cls, session: Session, page: str) -> Target:
        pages = session.client.pages
        routes: dict[str, Callable[..., Any]] = {
            "get": pages.get_domain,
            "connect": pages.connect_domain,
            "check": pages.check_domain,
            "disconnect": pages.disconnect_domain,
            "renew": pages.renew_domain,
        }
        return cls(routes, "ws pages domain", page)

    @classmethod
    def workspace(cls, session: Session, given: str | None) -> Target:
        found = session.workspace(given)
        names = ("get", "connect", "check", "disconnect", "renew")
        return cls({name: getattr(session.client.domains, name) for name in names}, "ws port domain", found)

    def call(self, route: str, **body: Any) -> Any:
        return self.routes[route](self.name, **body)

    def domain(self) -> Domain:
        """Raises CommandError where none is connected."""
        if found := self.call("get"):
            return found  # type: ignore[no-any-return]
        hint = f"`{self.words} add` connects one, `{self.words} check` shows the DNS records that it needs."
        raise CommandError("No domain is connected.", hint, ExitCode.NOT_FOUND)


def add_page_domain_commands(pages: typer.Typer) -> None:
    domains = command_group("domain", "Custom domains of pages, with certificates.", pages)
    command(domains, "add")(add_page_domain)
    command(domains, "check")(check_page_domain)
    command(domains, "list")(list_page_domains)
    command(domains, "show")(show_page_domain)
    command(domains, "renew")(renew_page_domain)
    command(domains, "rm")(remove_page_domain)


def add_port_domain_commands(ports: typer.Typer) -> None:
    domains = command_group("domain", "The custom domain of a workspace's public port, with certificates.", ports)
    command(domains, "add")(add_port_domain)
    command(domains, "check")(check_port_domain)
    command(domains, "show")(show_port_domain)
    command(domains, "renew")(renew_port_domain)
    command(domains, "rm")(remove_port_domain)


def add_page_domain(
    session: Session,
    *,
    page: PageName,
    domain: DomainName,
    include_www: IncludeWww = False,
    wait: Wait = False,
    timeout: WaitSeconds = 600,
) -> None:
    """Connect a domain to a page, in place of the one that it has. Its DNS records must be there: see `check`."""
    target = Target.page(session, page)
    _connect(session, target, {"domain": domain, "include_www": include_www}, timeout if wait else None)


def add_port_domain(
    session: Session,
    *,
    port: PortNumber,
    domain: DomainName,
    workspace: OptionalWorkspace = None,
    include_www: IncludeWww = False,
    wait: Wait = False,
    timeout: WaitSeconds = 600,
) -> None:
    """Connect a domain to a public port, in place of the one that the workspace has. See `check` for its records."""
    target = Target.workspace(session, workspace)
    body = {"domain": domain, "include_www": include_www, "port": port}
    _connect(session, target, body, timeout if wait else None)


def check_page_domain(session: Session, *, page: PageName, domain: DomainName, include_www: IncludeWww = False) -> int:
    """Show which DNS records a domain needs and has. Changes nothing; the exit code is 5 until all are right."""
    return _check(session, Target.page(session, page), domain, include_www)


def check_port_domain(
    session: Session, *, domain: DomainName, workspace: OptionalWorkspace = None, include_www: IncludeWww = False
) -> int:
    """Show which DNS records a domain needs and has. Changes nothing; the exit code is 5 until all are right."""
    return _check(session, Target.workspace(session, workspace), domain, include_www)


def list_page_domains(session: Session) -> None:
    """List the custom domains of all pages."""
    named = [page["slug"] for page in session.client.pages.list() if page["custom_domain"]]
    found = [(page, session.client.pages.get_domain(page)) for page in named]
    rows = [{"page": page, **domain} for page, domain in found if domain is not None]
    session.output.show_rows(LISTED, rows, "No custom domains. `ws pages domain add` connects one.")


def show_page_domain(session: Session, *, page: PageName) -> None:
    """Show the domain of a page, and the state of its certificate."""
    session.output.show_object(Target.page(session, page).domain(), FIELDS)


def show_port_domain(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Show the domain of a workspace, and the state of its certificate."""
    session.output.show_object(Target.workspace(session, workspace).domain(), FIELDS)


def renew_page_domain(session: Session, *, page: PageName) -> None:
    """Order a new certificate now, without waiting for it. Renewals before the end come by themselves."""
    _renew(session, Target.page(session, page))


def renew_port_domain(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Order a new certificate now, without waiting for it. Renewals before the end come by themselves."""
    _renew(session, Target.workspace(session, workspace))


def remove_page_domain(session: Session, *, page: PageName, yes: Confirmed = False) -> None:
    """Disconnect the domain of a page; its certificate is removed."""
    _disconnect(session, Target.page(session, page), yes)


def remove_port_domain(session: Session, *, workspace: OptionalWorkspace = None, yes: Confirmed = False) -> None:
    """Disconnect the domain of a workspace; its certificate is removed."""
    _disconnect(session, Target.workspace(session, workspace), yes)


def _connect(session: Session, target: Target, body: dict[str, Any], seconds: float | None) -> None:
    """`seconds`: how long to wait for the certificate; None: not at all."""
    try:
        connected = target.call("connect", **body)
    except InvalidRequest as error:
        if error.code == NOT_VERIFIED and isinstance(error.details, dict):
            session.output.show_rows_beside(RECORDS, _records(error.details))
            _warn_of_problems(session, error.details)
        raise
    if seconds is not None and connected["ssl"]["status"] != "active":
        connected = _with_certificate(session, target, connected["domain"], seconds)
    session.output.show_result(connected, connected["url"])
    if connected["ssl"]["status"] != "active":
        session.output.say(f"Its certificate: {_certificate_text(connected)}. `{target.words} show` has its state.")


def _with_certificate(session: Session, target: Target, domain: str, seconds: float) -> Domain:
    """The domain with its certificate, or where the platform orders none.

    Raises CommandError where the CA refuses it or the domain is connected no more, WaitTimeout.
    """
    until = time.monotonic() + seconds
    with session.output.step_progress() as show:
        while True:
            found = target.domain()
            state = found["ssl"]
            show(
                f"{found['domain']}: certificate {_certificate_text(found)}", 100 if state["status"] == "active" else 0
            )
            if state["status"] in ("active", "none"):
                return found
            if state["status"] in ("failed", "expired"):
                hint = f"It is ordered again by itself; `{target.words} renew` orders it now."
                raise CommandError(state["error"] or "The certificate could not be ordered.", hint)
            if time.monotonic() >= until:
                raise WaitTimeout(f"There is no certificate for {domain} after {seconds:g} seconds.")
            time.sleep(min(SECONDS_BETWEEN, max(0.0, until - time.monotonic())))


def _certificate_text(found: Mapping[str, Any]) -> str:
    state = found["ssl"]
    return f"{state['status']} ({state['error']})" if state["error"] else str(state["status"])


def _check(session: Session, target: Target, domain: str, include_www: bool) -> int:
    found = target.call("check", domain=domain, include_www=include_www)
    if session.output.as_json:
        session.output.show_json(found)
        return 0 if found["verified"] else ExitCode.CONFLICT
    session.output.show_rows(RECORDS, _records(found))
    _warn_of_problems(session, found)
    if not found["verified"]:
        session.output.say(
            f"Set these records where {found['domain']} is managed. A domain that can be no CNAME, as example.com "
            f"itself, takes the addresses of {found['cname']['expected']} (A and AAAA) instead."
        )
        return ExitCode.CONFLICT
    session.output.say(f"All records are right: `{target.words} add` connects it.")
    return 0


def _warn_of_problems(session: Session, found: Mapping[str, Any]) -> None:
    if not session.output.as_json:
        for problem in found["errors"]:
            session.output.warn(problem)


def _records(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The two records of a check as rows."""
    cname, text = found["cname"], found["ownership"]
    return [
        {
            "type": "CNAME",
            "name": found["domain"],
            "wanted": cname["expected"],
            "found": cname["actual"],
            "ok": cname["ok"],
        },
        {"type": "TXT", "name": text["host"], "wanted": text["expected"], "found": text["found"], "ok": text["ok"]},
    ]


def _renew(session: Session, target: Target) -> None:
    renewed = target.call("renew")
    text = f"A new certificate for {renewed['domain']} is ordered; `{target.words} show` has its state."
    session.output.show_result(renewed, text)


def _disconnect(session: Session, target: Target, yes: bool) -> None:
    found = target.domain()["domain"]
    require_confirmation(f"Disconnect {found}? It is not served any more, and its certificate is removed.", yes)
    target.call("disconnect")
    session.output.show_result({"domain": found, "removed": True}, f"{found} is disconnected.")
