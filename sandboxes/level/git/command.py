"""Running the git of a sandbox's image: by argument vector, without prompts, without helpers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxes.level.git.errors import GitNotAvailable, git_error
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.session import ExecResult, GuestSession
from workspaces.errors import PathInvalid

LOCAL_SECONDS = 60.0
REMOTE_SECONDS = 300.0
OUTPUT_LIMIT = 64 << 10  # bytes of each output: of most commands a line is read, or nothing
LISTING_LIMIT = 8 << 20
# Between SIGTERM and SIGKILL at a deadline: git removes its lock files, a clone what it has made.
GRACE_SECONDS = 3.0
# Nothing asks, and nothing that the image configures keeps or gives credentials.
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
    "GIT_ALLOW_PROTOCOL": "http:https:git:ssh:file",
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "C",
}
OPTIONS = (
    "--no-pager",
    *("-c", "credential.helper="),
    *("-c", "core.askPass="),
    *("-c", "core.quotePath=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "color.ui=false"),
    # A repository that another user made is the sandbox's own all the same.
    *("-c", "safe.directory=*"),
)


async def run_git(
    session: GuestSession,
    words: Sequence[str],
    *,
    path: str = "/",
    seconds: float = LOCAL_SECONDS,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    max_output: int = OUTPUT_LIMIT,
    remote: bool = False,
) -> ExecResult:
    """Run `git` in a directory. `seconds`: its deadline; `max_output` in bytes; `remote`: it contacts one.

    Raise GitNotAvailable, GuestPathNotFound, PathInvalid, and for another exit code than 0 the errors of `git_error`.
    """
    try:
        result = await session.execute(
            ["git", *OPTIONS, *words],
            env={**ENVIRONMENT, **(env or {})},
            working_dir=path,
            stdin=stdin,
            timeout=seconds,
            max_output=max_output,
            grace=GRACE_SECONDS,
        )
    except GuestCommandInvalid as exc:
        await require_directory(session, path)
        raise GitNotAvailable from exc
    if result.exit_code != 0 or result.timed_out:
        raise git_error(result, remote=remote)
    return result


async def require_directory(session: GuestSession, path: str) -> None:
    """Require the directory of a git that could not be started. Raise GuestPathNotFound, PathInvalid."""
    if (await session.stat(path)).type != "directory":
        raise PathInvalid("The repository's path is not a directory.")
