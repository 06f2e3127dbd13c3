"""Results of tools, without the fields that a model has no use for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from microvm.mcp_server.bounds import MOST_LINE, bounded_text


class WorkspaceSummary(BaseModel):
    """One workspace."""

    id: str
    slug: str | None
    name: str
    status: str
    ready: bool
    namespace: str
    image: str
    mode: str
    cpus: float
    memory_mb: int
    disk_size_mb: int
    error: str | None = Field(description="Why it failed.")
    public_urls: dict[str, str] = Field(description="Public port: its address.")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> WorkspaceSummary:
        error = row["info"]["error"] or row["provisioning"]["error"]
        fields = {name: row[name] for name in ("id", "slug", "name", "status", "ready", "namespace", "image", "mode")}
        return cls(
            **fields,
            **{name: row["resources"][name] for name in ("cpus", "memory_mb", "disk_size_mb")},
            error=bounded_error(error),
            public_urls={str(port["port"]): port["url"] for port in row["public_ports"]},
        )


def bounded_error(error: Mapping[str, Any] | None) -> str | None:
    """Return the message of an error, if there is one."""
    return bounded_text(error["message"], MOST_LINE)[0] if error else None


class WorkspaceListing(BaseModel):
    """Workspaces, newest first."""

    workspaces: list[WorkspaceSummary]
    truncated: bool = Field(description="There are more; narrow the search.")


class Done(BaseModel):
    """A sentence that says what was done."""

    message: str


class CommandResult(BaseModel):
    """How a command ended, and its output."""

    exit_code: int = Field(description="124 where it was killed at its timeout.")
    stdout: str
    stderr: str
    stdout_encoding: Literal["utf-8", "base64"] = Field(description="base64 where the bytes are no text.")
    stderr_encoding: Literal["utf-8", "base64"]
    duration_ms: int
    timed_out: bool
    truncated: bool = Field(description="Output was left out: write it to a file and read parts of it.")


class WorkloadSummary(BaseModel):
    """A program that the workspace keeps running."""

    name: str
    status: str
    command: list[str]
    pid: int | None
    exit_code: int | None
    restarts: int
    restart_policy: str | None
    problem: str | None = Field(None, description="Why it is saved, and not carried out in the running workspace yet.")

    @classmethod
    def of(cls, row: Mapping[str, Any], problem: str | None = None) -> WorkloadSummary:
        names = ("name", "status", "pid", "exit_code", "restarts", "restart_policy")
        words = [bounded_text(word, MOST_LINE)[0] for word in (row["cmd"] or [])[:50]]
        return cls(**{name: row[name] for name in names}, command=words, problem=problem)


class WorkloadListing(BaseModel):
    """The workloads of a workspace."""

    workloads: list[WorkloadSummary]


class ImageSummary(BaseModel):
    """An image of the catalog."""

    image: str
    preset: str | None
    label: str
    description: str
    memory_mb: int | None
    disk_size_mb: int | None


class Images(BaseModel):
    """Images of the catalog; those of registries can be used as well."""

    images: list[ImageSummary]
    truncated: bool


class Usage(BaseModel):
    """Usage since the creation of a workspace, or of all workspaces."""

    cpu_seconds: float
    disk_read_bytes: int
    disk_write_bytes: int
    received_bytes: int
    sent_bytes: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Usage:
        return cls(
            cpu_seconds=round(row["total_cpu_time_ns"] / 1e9, 3),
            disk_read_bytes=row["total_disk_read"],
            disk_write_bytes=row["total_disk_write"],
            received_bytes=row["total_net_rx"],
            sent_bytes=row["total_net_tx"],
        )


class Sizes(BaseModel):
    """Sizes of workspaces."""

    cpus: float
    memory_mb: int
    disk_size_mb: int


class PlanSummary(BaseModel):
    """Limits of the account's plan, and what it has."""

    plan: str
    workspaces: int
    most_workspaces: int
    can_create: bool
    reason: str | None
    limits_of_one: Sizes
    limits_of_all: Sizes
    owned: Sizes
    limits_of_running: Sizes
    running: Sizes


class Entry(BaseModel):
    """One entry of a directory."""

    name: str
    type: str
    size: int
    modified: str
    target: str | None = None


class Listing(BaseModel):
    """A directory, by name."""

    path: str
    entries: list[Entry]
    truncated: bool = Field(description="There are more entries than were asked for.")


class FilePart(BaseModel):
    """A part of a file."""

    path: str
    content: str
    encoding: Literal["utf-8", "base64"] = Field(description="base64 where the bytes are no text.")
    offset: int
    length: int = Field(description="Bytes that were read from `offset` on.")
    size: int | None = Field(description="Of the whole file in bytes, where it is known.")
    truncated: bool = Field(description="There is more: go on with `next_offset`.")
    next_offset: int | None


class Written(BaseModel):
    """A file that was written."""

    path: str
    size: int


class Edited(Written):
    """A file of which a part was replaced."""

    replaced: int = Field(description="How often the old text was there.")


class Match(BaseModel):
    """A line with what was searched for."""

    file: str
    line: int
    text: str


class Matches(BaseModel):
    """The lines that were found."""

    matches: list[Match]
    truncated: bool = Field(description="There are more; narrow the search.")


class LogLines(BaseModel):
    """The last lines of a log."""

    source: str
    lines: list[str]
    truncated: bool


class PublicPortResult(BaseModel):
    """A public port."""

    port: int
    url: str
    label: str
    access: str = Field(description="public: everyone may open it; private: who has a link.")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PublicPortResult:
        return cls(port=row["port"], url=row["url"], label=row["label"], access=row["access"])


class PublicPorts(BaseModel):
    """The public ports of a workspace."""

    ports: list[PublicPortResult]
    truncated: bool


class PortLinkResult(BaseModel):
    """A link to a private port."""

    id: str
    url: str | None = Field(description="Its address, with its secret; of a new link only.")
    label: str
    expires_at: str
    last_used_at: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PortLinkResult:
        return cls(**{name: row[name] for name in ("id", "url", "label", "expires_at", "last_used_at")})


class PortLinks(BaseModel):
    """The links to a private port."""

    links: list[PortLinkResult]
    truncated: bool


class PageSummary(BaseModel):
    """A static page."""

    slug: str
    name: str
    url: str
    status: str
    release: int | None
    error: str | None
    source_workspace_id: str
    exported_path: str
    skipped: list[str] = Field(default_factory=list, description="Entries of the folder that were left out.")

    @classmethod
    def of(cls, row: Mapping[str, Any], skipped: list[str] | None = None) -> PageSummary:
        names = ("slug", "name", "url", "status", "release", "source_workspace_id", "exported_path")
        error = row["deployment"]["error"]
        return cls(**{name: row[name] for name in names}, error=bounded_error(error), skipped=skipped or [])


class Pages(BaseModel):
    """Static pages, newest first."""

    pages: list[PageSummary]
    truncated: bool


class ReleaseSummary(BaseModel):
    """One release of a page."""

    release: int
    live: bool
    files: int
    bytes: int
    created_at: str


class Releases(BaseModel):
    """The kept releases of a page, newest first."""

    releases: list[ReleaseSummary]
    truncated: bool
