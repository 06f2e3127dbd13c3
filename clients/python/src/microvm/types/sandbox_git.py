"""Git in one sandbox, with its own token.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class CloneRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.clone`."""

    url: str
    targetDir: str | dict[str, Any]
    branch: NotRequired[str]
    auth: NotRequired[GitAuth]


class GitAuth(TypedDict):
    """Body, or a part of it, of `sandbox_git.clone`."""

    type: str
    username: NotRequired[str]
    password: NotRequired[str]
    token: NotRequired[str]
    sshKey: NotRequired[str]


class GitHeadResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.clone`."""

    message: str
    branch: str | None
    commit: str | None


class ExchangeRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.pull`."""

    repoPath: str | dict[str, Any]
    branch: NotRequired[str]
    force: NotRequired[bool]
    auth: NotRequired[GitAuth]


class RepositoryRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.check`."""

    repoPath: str | dict[str, Any]


class GitCheckResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.check`."""

    isRepository: bool
    path: str | None


class InitRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.init`."""

    repoPath: str | dict[str, Any]
    branch: NotRequired[str]


class GitStatusResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.status`."""

    branch: str | None
    commit: str | None
    upstream: str | None
    ahead: int
    behind: int
    staged: list[str]
    modified: list[str]
    untracked: list[str]
    conflicted: list[str]
    encodedPaths: NotRequired[dict[str, list[str]]]
    truncated: NotRequired[bool]


class AddRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.add`."""

    repoPath: str | dict[str, Any]
    files: NotRequired[list[str | dict[str, Any]]]


class GitMessageResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.add`."""

    message: str


class CommitRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.commit`."""

    repoPath: str | dict[str, Any]
    message: str
    author: NotRequired[Person]


class Person(TypedDict):
    """Body, or a part of it, of `sandbox_git.commit`."""

    name: str
    email: str


class GitCommitResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.commit`."""

    commit: str
    files: int
    insertions: int
    deletions: int


class HistoryRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.history`."""

    repoPath: str | dict[str, Any]
    limit: NotRequired[int]


class GitHistoryResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.history`."""

    commits: list[GitCommitEntry]


class GitCommitEntry(TypedDict):
    """Answer, or a part of one, of `sandbox_git.history`."""

    hash: str
    message: str
    author: str
    email: str
    date: str


class UserRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.set_user`."""

    repoPath: NotRequired[str | dict[str, Any]]
    name: NotRequired[str]
    email: NotRequired[str]


class GitBranchesResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_git.branches`."""

    branches: list[str]
    current: str | None
    truncated: NotRequired[bool]


class NewBranchRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.create_branch`."""

    repoPath: str | dict[str, Any]
    branchName: str
    checkout: NotRequired[bool]


class BranchRequest(TypedDict):
    """Body, or a part of it, of `sandbox_git.checkout`."""

    repoPath: str | dict[str, Any]
    branchName: str
