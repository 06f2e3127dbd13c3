"""Git with the credentials of a call: for the remote's own host, whatever the repository's configuration says.

Programs that git runs beside its own could ask for the credentials as well, so nothing that a repository names runs
at that time: no hooks, helpers, signers, maintenance. A configuration that could send credentials elsewhere, or past
the check of certificates, is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandboxes.level.git.addresses import Remote, read_remote
from sandboxes.level.git.command import (
    ENVIRONMENT,
    GRACE_SECONDS,
    OPTIONS,
    OUTPUT_LIMIT,
    REMOTE_SECONDS,
    require_directory,
    run_git,
)
from sandboxes.level.git.credentials import Credentials
from sandboxes.level.git.errors import GitCredentialsRefused, GitNotAvailable, GitNotFound, git_error, without_user
from vmbackend.errors import GuestCommandInvalid, GuestKitOutdated
from vmbackend.guest.session import GuestSession

REMOTE = "origin"
CONFIG_LIMIT = 1 << 20  # bytes of all settings
MAX_ADDRESSES = 100  # of one remote
ASKING_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "push.gpgSign=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "fetch.recurseSubmodules=false"),
    *("-c", "push.recurseSubmodules=no"),
    *("-c", "http.followRedirects=initial"),
)
# The agent's key and no other; nothing of the connection outlives the call, and the remote gets no agent.
SSH_COMMAND = (
    "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o IdentityAgent=SSH_AUTH_SOCK -o IdentitiesOnly=no"
    " -o IdentityFile=none -o PreferredAuthentications=publickey -o ForwardAgent=no -o ControlMaster=no"
    " -o ControlPath=none -o PermitLocalCommand=no"
)
# In the repository's own configuration: other ways to the same host, or to programs.
_REFUSED = re.compile(
    r"http\.(.*\.)?(proxy\w*|ssl\w*|curloptresolve|followredirects)|remote\..*\.(vcs|proxy\w*)|core\.alternaterefscommand"
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call's credentials, and the only remote that they are for."""

    remote: Remote
    credentials: Credentials = field(repr=False)

    def environment(self, session: GuestSession) -> Mapping[str, str]:
        """Return git's environment variables."""
        return {
            "GIT_ASKPASS": session.askpass_program if "https" in self.credentials.schemes else "",
            "GIT_SSH_COMMAND": SSH_COMMAND,
            "GIT_SSH_VARIANT": "ssh",
            **dict.fromkeys(("GIT_TRACE", "GIT_TRACE_CURL", "GIT_TRACE_PACKET", "GIT_TRACE2", "GIT_TRACE2_EVENT"), "0"),
            "GIT_TRACE_REDACT": "1",
        }

    async def answer(self, question: bytes) -> bytes:
        """Return the answer to a program of git; b"" is a refusal."""
        return await self.credentials.answer(question, self.remote)


async def run_remote_git(
    session: GuestSession, words: Sequence[str], exchange: Exchange | None, *, path: str = "/"
) -> None:
    """Run what contacts a remote, with the credentials of an exchange if there is one. Raise what `run_git` raises."""
    if exchange is None:
        await run_git(session, words, path=path, seconds=REMOTE_SECONDS, remote=True)
        return
    try:
        result = await session.execute_answering(
            ["git", *OPTIONS, *ASKING_OPTIONS, *words],
            answer=exchange.answer,
            env={**ENVIRONMENT, **exchange.environment(session)},
            working_dir=path,
            timeout=REMOTE_SECONDS,
            grace=GRACE_SECONDS,
            max_output=OUTPUT_LIMIT,
        )
    except GuestCommandInvalid as exc:
        await require_directory(session, path)
        raise GitNotAvailable from exc
    except GuestKitOutdated as exc:
        raise GitCredentialsRefused("This sandbox was started before credentials were supported: restart it.") from exc
    if result.exit_code != 0 or result.timed_out:
        raise git_error(result, exchange.credentials.secrets())


async def exchange_for_url(session: GuestSession, url: str, credentials: Credentials) -> Exchange:
    """Return the exchange for the host of a URL. Raise GitCredentialsRefused if git would go elsewhere."""
    printed = (await run_git(session, ["ls-remote", "--get-url", "--", url])).stdout
    return _checked(url, [_line(printed)], credentials)


async def exchange_for_origin(session: GuestSession, path: str, credentials: Credentials, *, push: bool) -> Exchange:
    """Return the exchange for the host of the repository's remote as configured. Raise GitCredentialsRefused,
    GitNotFound.
    """
    listed = await run_git(session, ["config", "--list", "--show-scope", "-z"], path=path, max_output=CONFIG_LIMIT)
    if listed.truncated:  # what is not read cannot be checked
        raise GitCredentialsRefused("The configuration of git is too large.")
    settings = await asyncio.to_thread(_settings, listed.stdout)
    for scope, name, _ in settings:
        if scope in ("local", "worktree") and _REFUSED.fullmatch(name):
            raise GitCredentialsRefused(f"The repository's configuration has {_shown(name)}.")
    named = {name: value for _, name, value in settings}
    url = (named.get(f"remote.{REMOTE}.pushurl") if push else None) or named.get(f"remote.{REMOTE}.url")
    if url is None:
        raise GitNotFound(f"There is no remote {REMOTE}.")
    words = ["remote", "get-url", *(["--push"] if push else []), "--all", REMOTE]
    printed = await run_git(session, words, path=path)
    addresses = printed.stdout.decode("utf-8", "replace").splitlines()
    if printed.truncated or len(addresses) > MAX_ADDRESSES:
        raise GitCredentialsRefused(f"The remote has more than {MAX_ADDRESSES} addresses.")
    return _checked(url, addresses, credentials)


def _checked(url: str, contacted: Sequence[str], credentials: Credentials) -> Exchange:
    remote = read_remote(url)
    if remote is None or remote.scheme not in credentials.schemes:
        wanted = " and ".join(sorted(credentials.schemes))
        raise GitCredentialsRefused(f"These credentials are for addresses of {wanted}.")
    places = [read_remote(address) for address in contacted]
    if not places or any(place is None or not place.is_place_of(remote) for place in places):
        raise GitCredentialsRefused("Git is configured to contact another host than that of the address.")
    return Exchange(remote, credentials)


def _settings(listed: bytes) -> list[tuple[str, str, str]]:
    """Return scope, name and value of the settings, in git's order: the last of a name is in force."""
    parts = listed.decode("utf-8", "replace").split("\0")
    pairs = zip(parts[::2], parts[1::2], strict=False)
    return [(scope, *_divided(setting)) for scope, setting in pairs]


def _divided(setting: str) -> tuple[str, str]:
    name, _, value = setting.partition("\n")
    return name, value


def _line(printed: bytes) -> str:
    return printed.decode("utf-8", "replace").removesuffix("\n")


def _shown(name: str) -> str:
    return without_user("".join(letter if letter.isprintable() else "?" for letter in name))[:200]
