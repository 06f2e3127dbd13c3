"""Commands about an account (credits, usage, images, plan), and calls of any route."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

import typer

from microvm.cli.completion import workspace_names
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.printable import size_text
from microvm.cli.session import Session, command
from microvm.errors import Forbidden

# Each namespace is asked for by itself: of more, only the quotas are shown.
MOST_SPENDERS = 50
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
CREDITS = (
    Column("Namespace", lambda row: row["namespace"]),
    Column("Service", lambda row: row["service"]),
    Column("Spent", lambda row: _amount(row["spent"])),
    Column("Used", lambda row: _amount(row["quota_used"])),
    Column("Limit", lambda row: _amount(row["quota_limit"]) or "none"),
    Column("Used %", lambda row: _percent(row["quota_used"], row["quota_limit"])),
)
IMAGES = (
    Column("Image", lambda row: row["image"]),
    Column("Preset", lambda row: row["preset"]),
    Column("Name", lambda row: row["label"]),
    Column("Category", lambda row: row["category"]),
    Column("RAM", lambda row: _mebibytes(row["vm_defaults"].get("memory_mb"))),
    Column("Disk", lambda row: _mebibytes(row["vm_defaults"].get("disk_size_mb"))),
)
USAGE = (
    Column("Workspace", lambda row: row["workspace"]),
    Column("CPU time", lambda row: f"{row['total_cpu_time_ns'] / 1e9:.1f} s"),
    Column("Read", lambda row: size_text(row["total_disk_read"])),
    Column("Written", lambda row: size_text(row["total_disk_write"])),
    Column("Received", lambda row: size_text(row["total_net_rx"])),
    Column("Sent", lambda row: size_text(row["total_net_tx"])),
)
ACCOUNT = (
    Column("Address", lambda row: row["url"]),
    Column("Client", lambda row: row["client_id"] or "an access token"),
    Column("From", lambda row: row["source"]),
    Column("Plan", lambda row: row["quota"] and row["quota"]["planLabel"]),
    Column("Workspaces", lambda row: row["quota"] and f"{row['quota']['currentSandboxes']} of {_most(row['quota'])}"),
    Column("One may have", lambda row: row["quota"] and _sizes(row["quota"]["limits"])),
    Column("All may have", lambda row: row["quota"] and _sizes(row["quota"]["pool"])),
    Column("All have", lambda row: row["quota"] and _sizes(row["quota"]["pool_usage"])),
    Column("Running may have", lambda row: row["quota"] and _sizes(row["quota"]["running_pool"])),
    Column("Running have", lambda row: row["quota"] and _sizes(row["quota"]["running_pool_usage"])),
    Column("No more", lambda row: row["quota"] and row["quota"]["reason"]),
)


def add_account_commands(app: typer.Typer) -> None:
    command(app, "whoami")(show_account)
    command(app, "credits")(show_credits)
    command(app, "usage")(show_usage)
    command(app, "images")(list_images)
    command(app, "api")(call_route)


def show_account(session: Session) -> None:
    """Show the address and the credential that are used, and what the plan allows."""
    connection = session.connection
    try:
        quota: Any = session.client.quota.get()
    except Forbidden:  # of a scope without workspaces
        quota = None
    shown = {
        "url": connection.profile.base_url,
        "client_id": connection.profile.client_id or None,
        "source": connection.source,
        "quota": quota,
    }
    session.output.show_object(shown, ACCOUNT)


def show_credits(
    session: Session,
    *,
    namespace: Annotated[str | None, typer.Argument(metavar="NAMESPACE", help="Only this one.")] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="Of the spending.")] = 30,
) -> None:
    """Show what namespaces spent in the last days, with a quota or without, and what is used of their quotas."""
    client = session.client
    if namespace:
        found: list[Any] = [client.credits.get(namespace, days=days)]
    else:
        found = list(client.credits.list())
        if len(found) <= MOST_SPENDERS:
            found = [client.credits.get(each["namespace"], days=days) for each in found]
        else:
            session.output.say("There are many namespaces: name one to see what it spends.")
    if session.output.as_json:
        session.output.show_json(found[0] if namespace else found)
        return
    rows = [row for each in found for row in _credit_rows(each)]
    session.output.show_rows(CREDITS, rows, f"Nothing was spent in {days} days, and there are no quotas.")


def show_usage(
    session: Session,
    *,
    workspace: Annotated[
        str | None,
        typer.Argument(metavar="WORKSPACE", help="Only this one; else all.", autocompletion=workspace_names),
    ] = None,
) -> None:
    """Show what workspaces have used since their creation: CPU time, disk, network."""
    if workspace is not None:
        totals = session.client.usage.totals(session.workspace(workspace))
        rows: list[dict[str, Any]] = [{"workspace": workspace, **totals}]
    else:
        everything = session.client.usage.all()
        rows = [{"workspace": name, **totals} for name, totals in everything["usage"].items()]
        rows.append({"workspace": "all", **everything["total"]})
    session.output.show_rows(USAGE, rows)


def list_images(session: Session) -> None:
    """List the images of the catalog. `ws create --image` also takes those of registries."""
    rows = [dict(row) for row in session.client.images.list()["images"]]
    session.output.show_rows(IMAGES, rows, "The catalog is empty. `ws create --image` takes an image of a registry.")


def call_route(
    session: Session,
    *,
    method: Annotated[Method, typer.Argument(metavar="METHOD", help="As GET.", case_sensitive=False)],
    path: Annotated[str, typer.Argument(metavar="PATH", help="As /workspace?limit=5.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="JSON", help="The body, an object; - reads standard input.")
    ] = None,
) -> None:
    """Call a route of the API with this credential, and print its JSON."""
    parts = urlsplit(path)
    if parts.scheme or parts.netloc or not parts.path.startswith("/"):
        raise CommandError(f"{path!r} is no path.", "It begins with a slash, as /workspace.", ExitCode.USAGE)
    query: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    body = _body(sys.stdin.read() if data == "-" else data) if data is not None else None
    session.output.show_json(session.client.call(method, parts.path, query=query, body=body))


def _body(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandError("The body is no JSON object.", 'It looks like \'{"name": "x"}\'.', ExitCode.USAGE)
    return found


def _credit_rows(namespace: Any) -> list[dict[str, Any]]:
    """A row for each service with a quota or spending. `services` is missing where it was not asked for."""
    spent = {each["service"]: each["credits"] for each in namespace.get("services", [])}
    quotas = {each["service"]: each for each in namespace["quotas"]}
    none = {"quota_used": None, "quota_limit": None}
    return [
        {
            "namespace": namespace["namespace"],
            "service": service,
            "spent": spent.get(service),
            **quotas.get(service, none),
        }
        for service in sorted({*spent, *quotas})
    ]


def _amount(value: Any) -> str:
    return "" if value is None else f"{float(value):.2f}"


def _percent(used: Any, limit: Any) -> str:
    return f"{100 * float(used) / float(limit):.0f} %" if limit and float(limit) else ""


def _mebibytes(value: Any) -> str:
    return f"{value} MiB" if value else ""


def _most(quota: Any) -> str:
    return str(quota["maxSandboxes"]) if quota["maxSandboxes"] > 0 else "any number"


def _sizes(row: Any) -> str:
    return f"{row['cpus']:g} CPUs, {row['memory_mb']} MiB of memory, {row['disk_size_mb']} MiB of disk"
