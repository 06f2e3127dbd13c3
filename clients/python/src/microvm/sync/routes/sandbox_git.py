"""Git in one sandbox, with its own token.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.sync.group import LONG, Group
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


class SandboxGitRoutes(Group):
    """Git in one sandbox, with its own token."""

    def clone(self, **body: Unpack[CloneRequest]) -> GitHeadResponse:
        """Clone a repository into a directory that does not exist, or is empty. Git's own sentence says what
        failed.
        """
        answer: GitHeadResponse = self._call("POST", "/git/clone", body=body, timeout=LONG)
        return answer

    def pull(self, **body: Unpack[ExchangeRequest]) -> GitHeadResponse:
        """Fetch and merge. A conflict leaves the merge unfinished, as the status shows."""
        answer: GitHeadResponse = self._call("POST", "/git/pull", body=body, timeout=LONG)
        return answer

    def push(self, **body: Unpack[ExchangeRequest]) -> GitHeadResponse:
        """Push a branch, by default the current one, to `origin`; with `force` commits that only the remote has go."""
        answer: GitHeadResponse = self._call("POST", "/git/push", body=body, timeout=LONG)
        return answer

    def check(self, **body: Unpack[RepositoryRequest]) -> GitCheckResponse:
        """Whether a directory is in the working tree of a repository."""
        answer: GitCheckResponse = self._call("POST", "/git/check", body=body, again=True)
        return answer

    def init(self, **body: Unpack[InitRequest]) -> GitHeadResponse:
        """Make a repository, and its directory where that is missing. One that exists is left as it is."""
        answer: GitHeadResponse = self._call("POST", "/git/init", body=body, again=True)
        return answer

    def status(self, **body: Unpack[RepositoryRequest]) -> GitStatusResponse:
        """What differs from the last commit; `ahead` and `behind` count from what was last fetched."""
        answer: GitStatusResponse = self._call("POST", "/git/status", body=body, again=True)
        return answer

    def add(self, **body: Unpack[AddRequest]) -> None:
        """Stage files and directories, removed ones included: all of them, or none where one does not exist."""
        self._call("POST", "/git/add", body=body, again=True)

    def commit(self, **body: Unpack[CommitRequest]) -> GitCommitResponse:
        """Commit what is staged."""
        answer: GitCommitResponse = self._call("POST", "/git/commit", body=body)
        return answer

    def history(self, **body: Unpack[HistoryRequest]) -> list[GitCommitEntry]:
        """The newest commits of the current branch, as far as they have 8 MiB together."""
        answer: list[GitCommitEntry] = self._call("POST", "/git/history", body=body, part="commits", again=True)
        return answer

    def set_user(self, **body: Unpack[UserRequest]) -> None:
        """Set name and email of commits, of one repository or of all."""
        self._call("POST", "/git/config/user", body=body, again=True)

    def branches(self, **body: Unpack[RepositoryRequest]) -> GitBranchesResponse:
        """The local branches by name, and the current one, which is not among them before its first commit."""
        answer: GitBranchesResponse = self._call("POST", "/git/branch/list", body=body, again=True)
        return answer

    def current_branch(self, **body: Unpack[RepositoryRequest]) -> GitBranchesResponse:
        """The current branch, with the others; null where HEAD is detached."""
        answer: GitBranchesResponse = self._call("POST", "/git/branch/current", body=body, again=True)
        return answer

    def create_branch(self, **body: Unpack[NewBranchRequest]) -> GitBranchesResponse:
        """Create a branch at the last commit. One that exists is `git_conflict`."""
        answer: GitBranchesResponse = self._call("POST", "/git/branch/create", body=body)
        return answer

    def checkout(self, **body: Unpack[BranchRequest]) -> GitBranchesResponse:
        """Change to a branch, a tag or a commit; a branch that only `origin` has becomes a local one."""
        answer: GitBranchesResponse = self._call("POST", "/git/branch/checkout", body=body, again=True)
        return answer
