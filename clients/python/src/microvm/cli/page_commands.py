"""Static pages: `ws pages`."""

from __future__ import annotations

from typing import Annotated

import typer

from microvm.cli.arguments import Confirmed, PageName, require_confirmation
from microvm.cli.copying import parse_place
from microvm.cli.domain_commands import add_page_domain_commands
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.printable import size_text
from microvm.cli.session import Session, command, command_group
from microvm.errors import NotFound

COLUMNS = (
    Column("Slug", lambda row: row["slug"]),
    Column("Status", lambda row: row["status"]),
    Column("Release", lambda row: row["release"]),
    Column("Address", lambda row: row["url"]),
    Column("Domain", lambda row: row["custom_domain"]),
)
RELEASES = (
    Column("Release", lambda row: row["release"]),
    Column("Live", lambda row: "*" if row["live"] else ""),
    Column("Files", lambda row: row["files"]),
    Column("Size", lambda row: size_text(row["bytes"])),
    Column("Created", lambda row: row["created_at"]),
)
FIELDS = (
    Column("Slug", lambda row: row["slug"]),
    Column("Name", lambda row: row["name"]),
    Column("Address", lambda row: row["url"]),
    Column("Status", lambda row: row["status"]),
    Column("Release", lambda row: row["release"]),
    Column("Deployment", lambda row: row["deployment"]["state"]),
    Column("Error", lambda row: (row["deployment"]["error"] or {}).get("message")),
    Column("Source", lambda row: f"{row['source_workspace_id']}:{row['exported_path']}"),
    Column("Domain", lambda row: row["custom_domain"]),
)


def add_page_commands(app: typer.Typer) -> None:
    pages = command_group("pages", "Static pages from folders of workspaces.", app)
    command(pages, "deploy")(deploy_page)
    command(pages, "list")(list_pages)
    command(pages, "show")(show_page)
    command(pages, "releases")(list_releases)
    command(pages, "rollback")(roll_back_page)
    command(pages, "enable")(enable_page)
    command(pages, "disable")(disable_page)
    command(pages, "rm")(remove_page)
    add_page_domain_commands(pages)


def deploy_page(
    session: Session,
    *,
    page: PageName,
    source: Annotated[
        str | None,
        typer.Argument(metavar="WORKSPACE:/FOLDER", help="What is served; without it the folder of last time."),
    ] = None,
) -> None:
    """Serve a folder of a running workspace. Makes the page where there is none with this slug."""
    body = {}
    if source:
        place = parse_place(source)
        if place.workspace is None:
            raise CommandError(
                f"{source!r} names no workspace.", "As in: ws pages deploy site hello:/srv", ExitCode.USAGE
            )
        body = {"workspace_id": session.workspace(place.workspace), "path": place.path}
    with session.output.step_progress() as show:
        show("Deploying", 0)
        try:
            answer = session.client.pages.deploy(page, **body)
            deployed, skipped = answer["page"], answer.get("skipped", [])
        except NotFound as error:
            if error.code != "not_found" or not body:
                raise
            deployed, skipped = session.client.pages.create(slug=page, name=page, **body), []
    for entry in skipped:
        session.output.warn(f"{entry['path']} was left out: {entry['reason']}.")
    session.output.show_result(deployed, deployed["url"])


def list_pages(session: Session) -> None:
    """List pages."""
    rows = [dict(row) for row in session.client.pages.list()]
    session.output.show_rows(COLUMNS, rows, "No pages. `ws pages deploy` makes one.")


def show_page(session: Session, *, page: PageName) -> None:
    """Show a page."""
    session.output.show_object(session.client.pages.get(page), FIELDS)


def list_releases(session: Session, *, page: PageName) -> None:
    """List the kept releases of a page, newest first."""
    session.output.show_rows(RELEASES, [dict(row) for row in session.client.pages.releases(page)], "No releases.")


def roll_back_page(
    session: Session,
    *,
    page: PageName,
    release: Annotated[
        int | None, typer.Argument(metavar="RELEASE", help="Without it: the one before the live one.")
    ] = None,
) -> None:
    """Serve another release of a page."""
    if release is None:
        kept = session.client.pages.releases(page)
        live = next((each["release"] for each in kept if each["live"]), 0)
        earlier = [each["release"] for each in kept if each["release"] < live]
        if not earlier:
            raise CommandError(f"{page} has no earlier release.", f"ws pages releases {page}", ExitCode.CONFLICT)
        release = max(earlier)
    served = session.client.pages.rollback(page, release=release)
    session.output.show_result(served, f"{served['url']} serves release {served['release']}.")


def enable_page(session: Session, *, page: PageName) -> None:
    """Serve a disabled page again."""
    served = session.client.pages.enable(page)
    session.output.show_result(served, f"{served['url']} is served.")


def disable_page(session: Session, *, page: PageName) -> None:
    """Stop serving a page; its releases are kept."""
    session.output.show_result(session.client.pages.disable(page), f"{page} is not served.")


def remove_page(session: Session, *, page: PageName, yes: Confirmed = False) -> None:
    """Delete a page with all its releases."""
    require_confirmation(f"Delete the page {page} with all releases?", yes)
    session.client.pages.delete(page)
    session.output.show_result({"deleted": page}, f"Deleted {page}.")
