"""Git in one sandbox, with its own token.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.aio.group import LONG, AsyncGroup
from microvm.types.sandbox_git import (
    AddRequest,
    BranchRequest,
    CloneRequest,
    CommitRequest,
    ExchangeRequest,
    GitBranchesResponse,
    GitCheckResponse,
    GitCommitEntry,
    GitCommitResponse,
    GitHeadResponse,
    GitStatusResponse,
    HistoryRequest,
    InitRequest,
    NewBranchRequest,
    RepositoryRequest,
    UserRequest,
)


class AsyncSandboxGitRoutes(AsyncGroup):
    """Git in one sandbox, with its own token."""

    async def clone(self, **body: Unpack[CloneRequest]) -> GitHeadResponse:
        """Clone a repository into a directory that does not exist, or is empty. Git's own sentence says what
        failed.
        """
        answer: GitHeadResponse = await self._call("POST", "/git/clone", body=body, timeout=LONG)
        return answer

    async def pull(self, **body: Unpack[ExchangeRequest]) -> GitHeadResponse:
        """Fetch and merge. A conflict leaves the merge unfinished, as the status shows."""
        answer: GitHeadResponse = await self._call("POST", "/git/pull", body=body, timeout=LONG)
        return answer

    async def push(self, **body: Unpack[ExchangeRequest]) -> GitHeadResponse:
        """Push a branch, by default the current one, to `origin`; with `force` commits that only the remote has go."""
        answer: GitHeadResponse = await self._call("POST", "/git/push", body=body, timeout=LONG)
        return answer

    async def check(self, **body: Unpack[RepositoryRequest]) -> GitCheckResponse:
        """Whether a directory is in the working tree of a repository."""
        answer: GitCheckResponse = await self._call("POST", "/git/check", body=body, again=True)
        return answer

    async def init(self, **body: Unpack[InitRequest]) -> GitHeadResponse:
        """Make a repository, and its directory if that is missing. One that exists is left as it is."""
        answer: GitHeadResponse = await self._call("POST", "/git/init", body=body, again=True)
        return answer

    async def status(self, **body: Unpack[RepositoryRequest]) -> GitStatusResponse:
        """The differences from the last commit; `ahead` and `behind` count from the last fetch."""
        answer: GitStatusResponse = await self._call("POST", "/git/status", body=body, again=True)
        return answer

    async def add(self, **body: Unpack[AddRequest]) -> None:
        """Stage files and directories, removed ones included: all of them, or none if one does not exist."""
        await self._call("POST", "/git/add", body=body, again=True)

    async def commit(self, **body: Unpack[CommitRequest]) -> GitCommitResponse:
        """Commit what is staged."""
        answer: GitCommitResponse = await self._call("POST", "/git/commit", body=body)
        return answer

    async def history(self, **body: Unpack[HistoryRequest]) -> list[GitCommitEntry]:
        """The newest commits of the current branch, as far as they have 8 MiB together."""
        answer: list[GitCommitEntry] = await self._call("POST", "/git/history", body=body, part="commits", again=True)
        return answer

    async def set_user(self, **body: Unpack[UserRequest]) -> None:
        """Set name and email of commits, of one repository or of all."""
        await self._call("POST", "/git/config/user", body=body, again=True)

    async def branches(self, **body: Unpack[RepositoryRequest]) -> GitBranchesResponse:
        """The local branches by name, and the current one, which is not among them before its first commit."""
        answer: GitBranchesResponse = await self._call("POST", "/git/branch/list", body=body, again=True)
        return answer

    async def current_branch(self, **body: Unpack[RepositoryRequest]) -> GitBranchesResponse:
        """The current branch, with the others; null if HEAD is detached."""
        answer: GitBranchesResponse = await self._call("POST", "/git/branch/current", body=body, again=True)
        return answer

    async def create_branch(self, **body: Unpack[NewBranchRequest]) -> GitBranchesResponse:
        """Create a branch at the last commit. One that exists is `git_conflict`."""
        answer: GitBranchesResponse = await self._call("POST", "/git/branch/create", body=body)
        return answer

    async def checkout(self, **body: Unpack[BranchRequest]) -> GitBranchesResponse:
        """Change to a branch, a tag or a commit; a branch that only `origin` has becomes a local one."""
        answer: GitBranchesResponse = await self._call("POST", "/git/branch/checkout", body=body, again=True)
        return answer
