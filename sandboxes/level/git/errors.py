"""Failures of git, sorted by what the caller can do; the message is git's own sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from common.errors import Conflict, DomainError, NotFound
from vmbackend.guest.session import ExecResult


class GitNotAvailable(Conflict):
    code = "git_not_available"
    message = "The sandbox's image has no git."


class GitAuthenticationFailed(DomainError):
    """The remote wants credentials, or others."""

    code = "git_authentication_failed"
    status = 400
    message = "The remote refused the credentials."


class GitCredentialsRefused(Conflict):
    """They would not go where they are for, or not only."""

    code = "git_credentials_refused"
    message = "The credentials cannot be used with this remote."


class GitSshNotAvailable(Conflict):
    code = "git_ssh_not_available"
    message = "The sandbox's image has no ssh, which git needs for this address."


class GitNotFound(NotFound):
    """No such repository, branch, commit or file."""

    code = "git_not_found"
    message = "Git did not find the repository, branch, commit or file."


class GitConflict(Conflict):
    """A merge conflict, local changes in the way, or a destination that exists."""

    code = "git_conflict"
    message = "Git found a conflict."


class GitNotFastForward(Conflict):
    code = "git_not_fast_forward"
    message = "The remote has commits that this branch does not have."


class GitNetworkError(DomainError):
    """The remote could not be reached."""

    code = "git_network_error"
    status = 502
    message = "The remote could not be reached."


class GitTimedOut(Conflict):
    """The error that git was ended at its deadline, without a remote that could be the reason."""

    code = "git_timed_out"
    message = "Git did not finish in time."


class GitNothingToCommit(Conflict):
    code = "git_nothing_to_commit"
    message = "Nothing is staged."


class GitFailed(Conflict):
    """Anything else; `details.exitCode`."""

    code = "git_failed"
    message = "Git failed."


# In this order: what a remote says of a missing repository often stands beside a general sentence.
_SORTED: tuple[tuple[str, type[DomainError]], ...] = (
    (r"\bssh: (command )?not found|cannot run ssh\b", GitSshNotAvailable),
    (r"nothing to commit|nothing added to commit|no changes added to commit", GitNothingToCommit),
    (r"non-fast-forward|\(fetch first\)|not possible to fast-forward|tip of your current branch is behind|"
     r"divergent branches", GitNotFastForward),
    (r"authentication failed|could not read (username|password)|permission denied|invalid username or password|"
     r"host key verification failed|terminal prompts disabled|error: 40[13]\b", GitAuthenticationFailed),
    (r"could not resolve|connection (refused|timed out|reset)|network is unreachable|no route to host|"
     r"failed to connect|couldn't connect|connection was reset|operation timed out|gnutls|early eof|"
     r"the remote end hung up|connection closed|closed by remote host|certificate|empty reply|recv failure|"
     r"returned error: 5\d\d\b", GitNetworkError),
    (r"conflict|would be overwritten|already exists|unmerged|unfinished|local changes|needs merge|"
     r"index\.lock|uncommitted", GitConflict),
    (r"not a git repository|not found|does not exist|did not match any|unknown revision|invalid reference|no such|"
     r"couldn't find remote ref|no configured push destination|does not appear to be a git repository|"
     r"not a valid object name|does not have any commits", GitNotFound),
)  # fmt: skip
MESSAGE_LIMIT = 1000
MAX_SAID = 16_384
# Bytes of standard error, and of the end of standard output.
MAX_STDERR, MAX_STDOUT = 64 << 10, 4096


def git_error(result: ExecResult, secrets: Sequence[str] = (), *, remote: bool = True) -> DomainError:
    """Return the error of a git that failed. Its sentence has none of the secrets, which a remote may repeat.

    `remote`: it contacts one.
    """
    said = f"{_whole_lines(result.stderr)}\n{result.stdout[-MAX_STDOUT:].decode('utf-8', 'replace')}"
    shown = said
    for secret in secrets:
        shown = shown.replace(secret, "***")
    sentence = _sentence(shown)
    details = {"exitCode": result.exit_code}
    if result.timed_out:
        return (GitNetworkError if remote else GitTimedOut)(GitTimedOut.message, details=details)
    for pattern, kind in _SORTED:
        if re.search(pattern, said[:MAX_SAID], re.IGNORECASE):
            return kind(sentence or kind.message, details=details)
    return GitFailed(sentence or GitFailed.message, details=details)


def _whole_lines(stderr: bytes) -> str:
    """Return the text's beginning, without a line that is cut: the rest of such a line may be part of a secret."""
    if len(stderr) >= MAX_STDERR:
        stderr = stderr[:MAX_STDERR].rpartition(b"\n")[0]
    return stderr.decode("utf-8", "replace")


def _sentence(said: str) -> str:
    """Return git's own line: that of its error if there is one, without user information of a URL."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("hint:")]
    marked = [line for line in lines if re.match(r"(fatal|error|CONFLICT|! \[|remote)\b|!", line)]
    line = " ".join((marked or lines)[:3])
    clean = "".join(letter if letter.isprintable() else "?" for letter in line)[:MESSAGE_LIMIT]
    return without_user(clean)


def without_user(text: str) -> str:
    """Return a text whose URLs have no user information, which may be a password."""
    return re.sub(r"://[^/@\s]*@", "://", text)
