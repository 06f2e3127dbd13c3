"""The first workspace, made through the public API as any client would, and the summary for a new user."""

from __future__ import annotations

import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from supervise.files import write_private
from supervise.output import print_block, print_message, progress_of

NAME = "first"
WAIT_SECONDS = 600.0
_ENDED = {"failed", "lost", "destroyed"}


class DemoError(Exception):
    """The first workspace did not come up; the message says why. The platform itself runs."""


def wait_until_serving(base_url: str, timeout: float) -> bool:
    """Return whether `/healthz` responded with 200 through the edge within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with httpx.Client(base_url=base_url, timeout=8, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                if client.get("/healthz").status_code == 200:
                    return True
            except httpx.HTTPError:
                pass  # the edge does not listen yet
            time.sleep(0.2)
    return False


def first_workspace(credentials: Mapping[str, str], made_for: Path) -> dict[str, Any] | None:
    """Find or make the workspace `first` and wait until it is ready. Raise DemoError.

    It is made once: `made_for` stores for which client it ran, and None is returned if that client's owner has
    deleted it since. One that never came up is made again.
    """
    client_id = credentials["CLIENT_ID"]
    with _client(credentials) as client:
        workspace = _find(client)
        if workspace is None and made_for.is_file() and made_for.read_text().strip() == client_id:
            return None
        workspace = _until_running(client, (workspace or _create(client, credentials["IMAGE"]))["id"])
    write_private(made_for, f"{client_id}\n")
    return workspace


def run_command(credentials: Mapping[str, str], workspace: Mapping[str, Any]) -> None:
    """Run `uname -a` in a workspace and print its output. Raise DemoError."""
    with _client(credentials) as client:
        result = _ok(_post(client, f"/workspace/{workspace['id']}/exec", {"cmd": ["uname", "-a"]}))
    print_message(f"{NAME}$ uname -a")
    for text in str(result.get("stdout", "")).splitlines():
        print_message(text)


@contextmanager
def _client(credentials: Mapping[str, str]) -> Iterator[httpx.Client]:
    headers = {"X-Client-ID": credentials["CLIENT_ID"], "X-Client-Secret": credentials["CLIENT_SECRET"]}
    base_url = credentials["BASE_URL"]
    with httpx.Client(base_url=base_url, headers=headers, timeout=60, trust_env=False) as client:
        try:
            yield client
        except httpx.HTTPError as error:
            raise DemoError(f"the API did not answer ({error})") from error


def summary(credentials: Mapping[str, str], workspace: Mapping[str, Any] | None) -> str:
    """Return the text for a new user: address, logins, three commands to try. It has secrets: for a terminal only."""
    client = f"{credentials['CLIENT_ID']} / {credentials['CLIENT_SECRET']}"
    admin = f"{credentials['ADMIN_USER']} / {credentials['ADMIN_PASSWORD'] or '(not made here)'}"
    lines = _address_lines(credentials["BASE_URL"], client, admin)
    return lines + _commands(credentials, workspace, credentials["CLIENT_ID"], credentials["CLIENT_SECRET"])


def summary_without_secrets(
    credentials: Mapping[str, str], workspace: Mapping[str, Any] | None, credentials_file: Path
) -> str:
    """Return the same if others may read it later, such as the journal: the file is named instead."""
    admin = f"{credentials['ADMIN_USER']} / $ADMIN_PASSWORD"
    lines = _address_lines(credentials["BASE_URL"], "$CLIENT_ID / $CLIENT_SECRET", admin)
    lines += f"  file     {credentials_file}, which a shell reads: . {shlex.quote(str(credentials_file))}\n"
    return lines + _commands(credentials, workspace, "$CLIENT_ID", "$CLIENT_SECRET")


def show_addresses(base: str) -> None:
    """Print the addresses, last, if no demo is made."""
    print_block(f"\n  API      {base}        (docs: {base}/docs)\n  admin    {base}/admin/\n")


def _address_lines(base: str, client: str, admin: str) -> str:
    return f"""
  API      {base}        (docs: {base}/docs)
  client   {client}
  admin    {base}/admin/   {admin}
"""


def _commands(
    credentials: Mapping[str, str], workspace: Mapping[str, Any] | None, client_id: str, client_secret: str
) -> str:
    base, workspace_id = credentials["BASE_URL"], workspace["id"] if workspace else "WORKSPACE_ID"
    login = f'-H "X-Client-ID: {client_id}" -H "X-Client-Secret: {client_secret}"'
    json_type = '-H "Content-Type: application/json"'
    return f"""
  Try:
    curl {login} {base}/workspace/{workspace_id}
    curl {login} {json_type} {base}/workspace/{workspace_id}/exec -d '{{"cmd": ["uname", "-a"]}}'
    curl {login} {json_type} {base}/workspace -d '{{"name": "second"}}'
"""


def show_summary(credentials: Mapping[str, str], workspace: Mapping[str, Any] | None, credentials_file: Path) -> None:
    """Print it last, without secrets if the output is no terminal."""
    if sys.stdout.isatty():
        print_block(summary(credentials, workspace))
    else:
        print_block(summary_without_secrets(credentials, workspace, credentials_file))


def _find(client: httpx.Client) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = _ok(client.get("/workspace", params={"search": NAME})).get("workspaces", [])
    return next((row for row in rows if row.get("name") == NAME and _status(row) not in _ENDED), None)


def _create(client: httpx.Client, image: str) -> dict[str, Any]:
    body = {"name": NAME, "image": image, "mode": "permanent", "wait_ready": False}
    # One key for all attempts of this request; later runs find the workspace by its name.
    headers = {"Idempotency-Key": f"first-{uuid.uuid4()}"}
    created: dict[str, Any] = _ok(_post(client, "/workspace", body, headers))["workspace"]
    return created


def _post(
    client: httpx.Client, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> httpx.Response:
    for _ in range(20):
        response = client.post(path, json=body, headers=headers)
        if response.status_code != 503:
            break
        time.sleep(1)  # a process is still starting, or the host has not reported its capacity yet
    return response


def _until_running(client: httpx.Client, workspace_id: str) -> dict[str, Any]:
    with progress_of("First workspace") as progress:
        workspace = _poll(client, workspace_id, progress)
    print_message(f"First workspace: {workspace_id} runs")
    return workspace


def _poll(client: httpx.Client, workspace_id: str, progress: Callable[[int, str], None]) -> dict[str, Any]:
    deadline, start_requested = time.monotonic() + WAIT_SECONDS, False
    while time.monotonic() < deadline:
        workspace: dict[str, Any] = _ok(client.get(f"/workspace/{workspace_id}"))["workspace"]
        status, provisioning = _status(workspace), workspace.get("provisioning") or {}
        if status == "running" and workspace.get("ready", True):
            return workspace
        if status in _ENDED:
            reason = (provisioning.get("error") or {}).get("message") or provisioning.get("message") or status
            raise DemoError(str(reason))
        if status in {"stopped", "paused", "sleeping"} and not start_requested:
            # One operation at a time: a refusal means one is in flight, and the loop sees its outcome.
            _start(client, workspace_id)
            start_requested = True
        progress(int(provisioning.get("progress") or 0), str(provisioning.get("message") or status))
        time.sleep(0.25)
    raise DemoError(f"it was not ready after {WAIT_SECONDS:.0f} seconds")


def _start(client: httpx.Client, workspace_id: str) -> None:
    """Start it. Raise DemoError with the reason of a refusal, unless an operation is in progress."""
    response = _post(client, f"/workspace/{workspace_id}/start", {})
    if response.is_error and "operation_in_progress" not in response.text:
        _ok(response)


def _status(workspace: Mapping[str, Any]) -> str:
    return str(workspace.get("status") or (workspace.get("info") or {}).get("status") or "")


def _ok(response: httpx.Response) -> dict[str, Any]:
    try:
        body: dict[str, Any] = response.json()
    except ValueError:
        raise DemoError(f"{response.request.url} answered {response.status_code} without JSON") from None
    if response.is_error:
        raise DemoError(f"{body.get('error')}: {body.get('message')}")
    return body
