"""The words that are executed for a command and its mode."""

from __future__ import annotations

from collections.abc import Sequence

AUTO, SHELL, DIRECT = "auto", "shell", "direct"
MODES = (AUTO, SHELL, DIRECT)
# A single word with one of them, or with white space, is meant for a shell.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"'*?[]#~=%")


def words_of(command: str | Sequence[str], mode: str) -> list[str]:
    """Return the words; a string is a script, unless the mode is DIRECT."""
    words = [command] if isinstance(command, str) else list(command)
    is_script = mode == SHELL or (mode == AUTO and (isinstance(command, str) or _is_script(words)))
    return ["sh", "-c", " ".join(words)] if is_script else words


def _is_script(words: Sequence[str]) -> bool:
    if len(words) != 1:
        return False
    return not SHELL_CHARACTERS.isdisjoint(words[0]) or any(letter.isspace() for letter in words[0])
