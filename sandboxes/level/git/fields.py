"""Request fields of the git routes: addresses, branches, names of people. None becomes an option of git."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.fields import AnyField
from workspaces.data_plane.fields import ENCODED, MAX_PATH, ArgumentField, TextField, checked_text, text_or_encoded

SCHEMES = frozenset({"http", "https", "ssh", "git", "file"})
MAX_REF = 250
_SHORT = re.compile(r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[][A-Za-z0-9_.:\]-]*:[^:].*")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/.]|/\.|[/.]$|\.lock(/|$)|^@$")


class AddressField(ArgumentField):
    """The place of a repository: a URL, `user@host:path`, or an absolute path in the sandbox."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_bytes=MAX_PATH - 1, allow_empty=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        address = super().to_internal_value(data)
        if re.search(r"[\x00-\x20\x7f]", address) or address.startswith("-") or not _is_address(address):
            raise serializers.ValidationError(
                "A URL (http, https, ssh, git, file), user@host:path or an absolute path is required."
            )
        if "://" in address and urlsplit(address).password is not None:
            raise serializers.ValidationError("A password in the URL would stay in the repository's configuration.")
        return address


def _is_address(address: str) -> bool:
    if re.match(r"[^/]*::", address):
        return False
    if "://" not in address:
        return address.startswith("/") or _SHORT.fullmatch(address) is not None
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/")
    return parts.scheme in SCHEMES and bool(host) and not host.startswith("-") and not parts.netloc.startswith("-")


class BranchField(ArgumentField):
    """A name that git accepts for a branch."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_bytes=MAX_REF, allow_empty=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if _NO_REF.search(name):
            raise serializers.ValidationError("This is not the name of a branch.")
        return name


class PersonField(ArgumentField):
    """A name or an email address in a commit."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_bytes=MAX_REF, allow_empty=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data).strip()
        if not text or re.search(r"[\x00-\x1f\x7f<>]", text):
            raise serializers.ValidationError("Control characters, `<` and `>` are not accepted.")
        return text


@extend_schema_field({"oneOf": [{"type": "string", "examples": ["src/main.c"]}, ENCODED]})
class FileNameField(AnyField):
    """A file or directory, relative to the repository's path, or absolute; `{"encoded": ...}` as in `PathField`."""

    def to_internal_value(self, data: Any) -> str:
        name = checked_text(text_or_encoded(data), MAX_PATH, "name")
        if not name:
            raise serializers.ValidationError("This field may not be blank.")
        return name

    def to_representation(self, value: Any) -> Any:
        return value


class SecretField(TextField):
    """A password, a token or a key, whose value is in no error. `lines`: line ends are accepted."""

    def __init__(self, *, max_bytes: int, lines: bool = False, **kwargs: Any) -> None:
        self.lines = lines
        super().__init__(max_bytes=max_bytes, allow_empty=False, required=False, write_only=True, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if re.search(r"[\x00-\x1f\x7f]", re.sub(r"[\r\n\t]", "", text) if self.lines else text):
            raise serializers.ValidationError("Control characters are not accepted.")
        return text
