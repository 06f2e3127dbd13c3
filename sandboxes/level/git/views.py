"""`/s/:id/git/...` (wire contract, section 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.async_threads import in_render_thread
from common.openapi import refused
from common.parsers import UnstoredObjectParser
from common.responses import respond
from sandboxes.level.base import SandboxLevelViewSet, SandboxRequest
from sandboxes.level.git import serializers as s
from sandboxes.level.git import services
from sandboxes.level.git.command import LOCAL_SECONDS, REMOTE_SECONDS
from sandboxes.level.git.status import Status
from vmbackend.guest.session import GuestSession
from workspaces.files.paths import displayed_path, encoded_path

T = TypeVar("T")

# A route runs up to three commands, one with a remote up to four more.
LOCAL_CALL_SECONDS = 3 * LOCAL_SECONDS + 20
REMOTE_CALL_SECONDS = REMOTE_SECONDS + 4 * LOCAL_SECONDS + 20
LOCAL = {
    400: "`validation_error`; `path_invalid`",
    404: "`path_not_found`; `git_not_found`: no repository, branch, commit or file",
    409: "`git_not_available`: the image has no git; `git_conflict`; `git_timed_out`: it took more than a minute; "
    "`git_failed`; `vm_not_running`",
}
REMOTE = {
    **LOCAL,
    400: f"{LOCAL[400]}; `git_authentication_failed`",
    409: f"{LOCAL[409]}; `git_not_fast_forward`; `git_credentials_refused`: with `auth`, if git contacts "
    "another host; `git_ssh_not_available`: the image has no ssh",
    502: "`git_network_error`: also if the call takes more than five minutes",
}


class _GitViewSet(SandboxLevelViewSet):
    parser_classes = [UnstoredObjectParser]

    async def _run(self, fn: Callable[[GuestSession], Awaitable[T]], seconds: float = LOCAL_CALL_SECONDS) -> T:
        guest = await self.guest()
        return await guest.run(fn, seconds)


class SandboxRepositoriesViewSet(_GitViewSet):
    """Repositories, and their exchange with remotes."""

    @extend_schema(
        request=s.CloneRequest, responses={200: s.GitHeadResponse, **refused(REMOTE)}, examples=s.CLONE_EXAMPLES
    )
    async def clone(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Clone a repository into a directory that does not exist, or is empty. Git's own sentence says what failed.

        `auth` is for the host of `url`: a redirect to another one gets nothing, and no hook runs.
        """
        data = await self.body(s.CloneRequest)
        head = await self._run(
            lambda session: services.repository_clone(
                session, url=data["url"], target=data["targetDir"], branch=data.get("branch"), auth=data.get("auth")
            ),
            REMOTE_CALL_SECONDS,
        )
        return _headed("The repository is cloned.", head)

    @extend_schema(request=s.ExchangeRequest, responses={200: s.GitHeadResponse, **refused(REMOTE)})
    async def pull(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Fetch and merge. A conflict leaves the merge unfinished, as the status shows.

        With `force` local commits and changes of tracked files are dropped in favour of the remote's. `auth` is for the
        host of `origin`; submodules are not fetched with it.
        """
        return await self._exchanged(services.repository_pull, "The branch is up to date with the remote.")

    @extend_schema(request=s.ExchangeRequest, responses={200: s.GitHeadResponse, **refused(REMOTE)})
    async def push(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Push a branch, by default the current one, to `origin`; with `force` commits that only the remote has go.

        With `auth` no hook runs (`pre-push`).
        """
        return await self._exchanged(services.repository_push, "The branch is pushed.")

    async def _exchanged(self, service: Callable[..., Awaitable[Status]], message: str) -> Response:
        data = await self.body(s.ExchangeRequest)
        fields = {"path": data["repoPath"], "branch": data.get("branch"), "force": data["force"]}
        head = await self._run(lambda session: service(session, **fields, auth=data.get("auth")), REMOTE_CALL_SECONDS)
        return _headed(message, head)

    @extend_schema(request=s.InitRequest, responses={200: s.GitHeadResponse, **refused(LOCAL)})
    async def init(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Make a repository, and its directory if that is missing. One that exists is left as it is."""
        data = await self.body(s.InitRequest)
        head = await self._run(
            lambda session: services.repository_init(session, path=data["repoPath"], branch=data.get("branch"))
        )
        return _headed("The repository exists.", head)

    @extend_schema(request=s.RepositoryRequest, responses={200: s.GitCheckResponse, **refused(LOCAL)})
    async def check(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Whether a directory is in the working tree of a repository."""
        path = (await self.body(s.RepositoryRequest))["repoPath"]
        root = await self._run(lambda session: services.repository_root(session, path=path))
        shown = None if root is None else displayed_path(root)
        return respond(s.GitCheckResponse, isRepository=root is not None, path=shown)


class SandboxCommitsViewSet(_GitViewSet):
    """Commits of a repository, and changes that are not committed."""

    @extend_schema(request=s.RepositoryRequest, responses={200: s.GitStatusResponse, **refused(LOCAL)})
    async def status(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The differences from the last commit; `ahead` and `behind` count from the last fetch.

        Paths are relative to the repository's top. At most 100,000 files are shown, of 8 MiB together; `truncated` is
        there if there are more.
        """
        path = (await self.body(s.RepositoryRequest))["repoPath"]
        found = await self._run(lambda session: services.status_read(session, path=path))
        return await in_render_thread(lambda: respond(s.GitStatusResponse, **_shown(found)))

    @extend_schema(request=s.AddRequest, responses={200: s.GitMessageResponse, **refused(LOCAL)})
    async def add(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Stage files and directories, removed ones included: all of them, or none if one does not exist."""
        data = await self.body(s.AddRequest)
        files = data.get("files", ["."])
        await self._run(lambda session: services.files_add(session, path=data["repoPath"], files=files))
        return respond(s.GitMessageResponse, message="The changes are staged.")

    @extend_schema(
        request=s.CommitRequest,
        responses={
            200: s.GitCommitResponse,
            **refused({**LOCAL, 409: f"`git_nothing_to_commit`; {LOCAL[409]}: also if no author is known"}),
        },
    )
    async def commit(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Commit what is staged."""
        data = await self.body(s.CommitRequest)
        made = await self._run(
            lambda session: services.commit_create(
                session, path=data["repoPath"], message=data["message"], author=data.get("author")
            )
        )
        return respond(s.GitCommitResponse, **asdict(made))

    @extend_schema(request=s.HistoryRequest, responses={200: s.GitHistoryResponse, **refused(LOCAL)})
    async def history(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The newest commits of the current branch, as far as they have 8 MiB together."""
        data = await self.body(s.HistoryRequest)
        commits = await self._run(
            lambda session: services.history_read(session, path=data["repoPath"], limit=data["limit"])
        )
        return await in_render_thread(
            lambda: respond(s.GitHistoryResponse, commits=[asdict(commit) for commit in commits])
        )

    @extend_schema(request=s.UserRequest, responses={200: s.GitMessageResponse, **refused(LOCAL)})
    async def user(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Set name and email of commits, of one repository or of all."""
        data = await self.body(s.UserRequest)
        await self._run(
            lambda session: services.user_configure(
                session, path=data.get("repoPath"), name=data.get("name"), email=data.get("email")
            )
        )
        return respond(s.GitMessageResponse, message="The user is configured.")


class SandboxBranchesViewSet(_GitViewSet):
    """Local branches."""

    @extend_schema(request=s.RepositoryRequest, responses={200: s.GitBranchesResponse, **refused(LOCAL)})
    async def list(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The local branches by name, and the current one, which is not among them before its first commit."""
        return await self._branches()

    @extend_schema(request=s.RepositoryRequest, responses={200: s.GitBranchesResponse, **refused(LOCAL)})
    async def current(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """The current branch, with the others; null if HEAD is detached."""
        return await self._branches()

    async def _branches(self) -> Response:
        path = (await self.body(s.RepositoryRequest))["repoPath"]
        return _listed(await self._run(lambda session: services.branches_list(session, path=path)))

    @extend_schema(request=s.NewBranchRequest, responses={200: s.GitBranchesResponse, **refused(LOCAL)})
    async def make(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Create a branch at the last commit. One that exists is `git_conflict`."""
        data = await self.body(s.NewBranchRequest)
        return _listed(
            await self._run(
                lambda session: services.branch_create(
                    session, path=data["repoPath"], name=data["branchName"], checkout=data["checkout"]
                )
            )
        )

    @extend_schema(request=s.BranchRequest, responses={200: s.GitBranchesResponse, **refused(LOCAL)})
    async def checkout(self, request: SandboxRequest, sandbox_id: str) -> Response:
        """Change to a branch, a tag or a commit; a branch that only `origin` has becomes a local one."""
        data = await self.body(s.BranchRequest)
        return _listed(
            await self._run(
                lambda session: services.branch_checkout(session, path=data["repoPath"], name=data["branchName"])
            )
        )


def _shown(found: Status) -> dict[str, Any]:
    body = asdict(found)
    more = _more(truncated=body.pop("truncated"))
    encoded: dict[str, dict[str, None]] = {}  # sorted out by keys: a machine may name thousands alike
    for name in ("staged", "modified", "untracked", "conflicted"):
        for file in body[name]:
            if (as_bytes := encoded_path(file)) is not None:
                encoded.setdefault(displayed_path(file), {})[as_bytes] = None
        body[name] = [displayed_path(file) for file in body[name]]
    shown = {"encodedPaths": {path: list(each) for path, each in encoded.items()}} if encoded else {}
    return body | shown | more


def _more(*, truncated: bool) -> dict[str, bool]:
    return {"truncated": True} if truncated else {}


def _headed(message: str, head: Status) -> Response:
    fields: dict[str, Any] = {"branch": head.branch, "commit": head.commit}
    return respond(s.GitHeadResponse, message=message, **fields)


def _listed(found: services.Branches) -> Response:
    shown = {"branches": list(found.names), "current": found.current, **_more(truncated=found.truncated)}
    return respond(s.GitBranchesResponse, **shown)
