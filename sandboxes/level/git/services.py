"""Git in a sandbox, as coroutines that take its guest's session. All raise as `command.run_git`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandboxes.level.git.command import LISTING_LIMIT, OUTPUT_LIMIT, run_git
from sandboxes.level.git.credentials import Credentials
from sandboxes.level.git.errors import GitFailed, GitNotFound
from sandboxes.level.git.exchange import REMOTE, exchange_for_origin, exchange_for_url, run_remote_git
from sandboxes.level.git.status import LOG_FORMAT, Commit, Status, read_log, read_stat, read_status
from vmbackend.guest.session import GuestSession

MAX_BRANCHES = 10_000
BRANCHES_LIMIT = 1 << 20  # bytes of their names
# Directories that git makes are named from the root, its working directory then.


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made, and what it changed."""

    commit: str
    files: int
    insertions: int
    deletions: int


@dataclass(frozen=True, slots=True)
class Branches:
    """Local branches by name. `current`: None if HEAD is detached; `truncated`: there are more."""

    names: Sequence[str]
    current: str | None
    truncated: bool


async def repository_clone(
    session: GuestSession, *, url: str, target: str, branch: str | None, auth: Credentials | None = None
) -> Status:
    """Clone; return the state of the new repository. Git removes what a failed clone made.

    `auth` is for the URL's own host and is not kept. Raise GitCredentialsRefused too.
    """
    exchange = await exchange_for_url(session, url, auth) if auth else None
    chosen = [f"--branch={branch}"] if branch else []
    await run_remote_git(session, ["clone", *chosen, "--", url, f".{target}"], exchange)
    return await _head(session, target)


async def repository_init(session: GuestSession, *, path: str, branch: str | None) -> Status:
    """Make a repository, and its directory; of one that exists nothing changes."""
    await run_git(session, ["init", *([f"--initial-branch={branch}"] if branch else []), "--", f".{path}"])
    return await _head(session, path)


async def repository_pull(
    session: GuestSession, *, path: str, branch: str | None, force: bool, auth: Credentials | None = None
) -> Status:
    """Fetch and merge; with `force` local commits and changes are dropped. A conflict leaves the merge unfinished.

    `auth` is for the remote's own host and is not kept. Raise GitCredentialsRefused too.
    """
    wanted = [REMOTE, branch] if branch else []
    if auth is None and not force:
        await run_remote_git(session, ["pull", "--no-rebase", "--no-edit", *wanted], None, path=path)
        return await _head(session, path)
    exchange = await exchange_for_origin(session, path, auth, push=False) if auth else None
    await run_remote_git(session, ["fetch", *(wanted or ([REMOTE] if auth else []))], exchange, path=path)
    # Apart, as hooks and filters of the repository may run here.
    words = ["reset", "--hard", "FETCH_HEAD"] if force else ["merge", "--no-edit", "FETCH_HEAD"]
    await run_git(session, words, path=path)
    return await _head(session, path)


async def repository_push(
    session: GuestSession, *, path: str, branch: str | None, force: bool, auth: Credentials | None = None
) -> Status:
    """Push a branch, by default the current one, to the branch of its name, which it follows from then on.

    `auth` as in `repository_pull`.
    """
    exchange = await exchange_for_origin(session, path, auth, push=True) if auth else None
    what = f"refs/heads/{branch}" if branch else "HEAD"
    words = ["push", "--set-upstream", *(["--force"] if force else []), REMOTE, what]
    await run_remote_git(session, words, exchange, path=path)
    return await _head(session, path)


async def repository_root(session: GuestSession, *, path: str) -> str | None:
    """Return the top of the working tree that a directory is in, None if it is in none."""
    try:
        result = await run_git(session, ["rev-parse", "--show-toplevel"], path=path)
    except (GitNotFound, GitFailed):
        return None
    return result.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")


async def status_read(session: GuestSession, *, path: str) -> Status:
    """Return the differences from the last commit, and from the followed branch as it was last seen."""
    return await _status(session, path, "all", LISTING_LIMIT)


async def files_add(session: GuestSession, *, path: str, files: Sequence[str]) -> None:
    """Stage files or directories, removed ones included. All are taken by their names, or none."""
    await run_git(session, ["--literal-pathspecs", "add", "--all", "--", *files], path=path)


async def commit_create(
    session: GuestSession, *, path: str, message: str, author: Mapping[str, str] | None
) -> Committed:
    """Commit what is staged. `author` (name, email) is the committer, too. Raise GitNothingToCommit."""
    env: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER") if author else ():
        env |= {f"GIT_{role}_NAME": (author or {})["name"], f"GIT_{role}_EMAIL": (author or {})["email"]}
    words = ["commit", "--cleanup=whitespace", "--file=-"]
    await run_git(session, words, path=path, stdin=message.encode(), env=env)
    shown = await run_git(session, ["show", "--no-show-signature", "--shortstat", "--format=%H", "HEAD"], path=path)
    commit, _, rest = shown.stdout.partition(b"\n")
    return Committed(commit.decode("ascii", "replace")[:64], *read_stat(rest))


async def history_read(session: GuestSession, *, path: str, limit: int) -> list[Commit]:
    """Return the newest commits of the current branch; none if it has none."""
    if (await _head(session, path)).commit is None:
        return []
    words = ["log", "--no-show-signature", f"--max-count={limit}", f"--format={LOG_FORMAT}"]
    printed = await run_git(session, words, path=path, max_output=LISTING_LIMIT)
    return await asyncio.to_thread(read_log, printed.stdout, limit)


async def user_configure(session: GuestSession, *, path: str | None, name: str | None, email: str | None) -> None:
    """Set the name and email of commits: of one repository, or without a path of all that have none of their own."""
    where = "--global" if path is None else "--local"
    for key, value in (("user.name", name), ("user.email", email)):
        if value is not None:
            await run_git(session, ["config", where, "--replace-all", key, value], path=path or "/")


async def branches_list(session: GuestSession, *, path: str) -> Branches:
    """Return the local branches."""
    words = ["for-each-ref", f"--count={MAX_BRANCHES + 1}", "--format=%(refname:lstrip=2)", "refs/heads"]
    result = await run_git(session, words, path=path, max_output=BRANCHES_LIMIT)
    names = result.stdout.decode("utf-8", "replace").splitlines()
    truncated = result.truncated or len(names) > MAX_BRANCHES
    return Branches(names[:MAX_BRANCHES], (await _head(session, path)).branch, truncated)


async def branch_create(session: GuestSession, *, path: str, name: str, checkout: bool) -> Branches:
    """Create a branch at the last commit. Raise GitConflict if it exists."""
    await run_git(session, ["checkout", "-b", name, "--"] if checkout else ["branch", "--", name], path=path)
    return await branches_list(session, path=path)


async def branch_checkout(session: GuestSession, *, path: str, name: str) -> Branches:
    """Change to a branch, a tag or a commit; a branch of the remote is made a local one."""
    await run_git(session, ["checkout", name, "--"], path=path)
    return await branches_list(session, path=path)


async def _head(session: GuestSession, path: str) -> Status:
    """Return branch and commit, which git prints first."""
    return await _status(session, path, "no", OUTPUT_LIMIT)


async def _status(session: GuestSession, path: str, untracked: str, limit: int) -> Status:
    words = ["status", "--porcelain=v2", "--branch", "-z", f"--untracked-files={untracked}"]
    printed = await run_git(session, words, path=path, max_output=limit)
    return await asyncio.to_thread(read_status, printed.stdout, cut=printed.truncated)
