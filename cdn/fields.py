"""Fields of requests that only the CDN has: names, tags, metadata, variants, policies."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from rest_framework import serializers as s

from cdn.models import MAX_BYTES
from cdn.states import Kind
from cdn.types import FITS, VARIANT_FORMATS, VARIANT_SIDE_MAX
from common.fields import BoundedList, JSONObject, StrictChar, StrictFloat, StrictInteger

FILENAME_BYTES, TAG_BYTES, METADATA_BYTES = 255, 64, 16 * 1024
MAX_TAGS, MAX_VARIANTS, MAX_TIERS = 32, 64, 32
MAX_SECONDS = 1_000_000_000
MAX_SIDE = 2**31 - 1
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
NAME_RULE = "1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit"
TIER = re.compile(r"[A-Za-z0-9_-]{1,40}")


def plain_text(data: str, most: int, what: str) -> str:
    """Return the text. Raise a validation error if it is empty, has more UTF-8 bytes, or has control characters."""
    if not 0 < len(data.encode()) <= most:
        raise s.ValidationError(f"{what} has 1 to {most} bytes in UTF-8.")
    if any(unicodedata.category(each) == "Cc" for each in data):
        raise s.ValidationError(f"{what} cannot contain control characters.")
    return data


class FilenameField(StrictChar):
    """Field for the client's name of a file. It is shown; nothing that is stored is named by it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        return plain_text(super().to_internal_value(data), FILENAME_BYTES, "A file name")


class TypeField(StrictChar):
    """Field for a media type that a client claims; empty if the client does not know."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        return plain_text(text, FILENAME_BYTES, "A media type") if text else text


class TagField(StrictChar):
    """Field for a tag, exact and case-sensitive (specification, CDN quota fields)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = plain_text(super().to_internal_value(data), TAG_BYTES, "A tag")
        if text != text.strip():
            raise s.ValidationError("A tag cannot begin or end with whitespace.")
        return text


class TagsField(BoundedList):
    """Field for a list of tags, each once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TagField(), max_length=MAX_TAGS, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        tags = super().to_internal_value(data)
        if len(set(tags)) < len(tags):
            raise s.ValidationError("A tag is given twice; give each tag once.")
        return tags


class MetadataField(JSONObject):
    """Field for an object of at most 16 KiB as JSON."""

    def to_internal_value(self, data: Any) -> Any:
        value = super().to_internal_value(data)
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        if size > METADATA_BYTES:
            raise s.ValidationError(f"At most {METADATA_BYTES} bytes as JSON; it would be {size}.")
        return value


class VariantRequest(s.Serializer[Any]):
    """A smaller copy of a picture. One side may be left out: it follows from the other. Without both only the format
    changes.
    """

    width = StrictInteger(min_value=1, max_value=VARIANT_SIDE_MAX, required=False)
    height = StrictInteger(min_value=1, max_value=VARIANT_SIDE_MAX, required=False)
    fit = s.ChoiceField(choices=FITS, default=FITS[0])
    format = s.ChoiceField(choices=sorted(VARIANT_FORMATS), required=False, help_text="Default: that of the file.")
    quality = StrictInteger(min_value=1, max_value=100, required=False)


class VariantsField(s.DictField):
    """Field for variants by name. The name becomes a part of the variant's address."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=VariantRequest(), **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            if len(data) > MAX_VARIANTS:
                raise s.ValidationError(f"At most {MAX_VARIANTS} variants.")
            if not all(VARIANT_NAME.fullmatch(name) for name in data):
                raise s.ValidationError(f"The name of a variant is {NAME_RULE}.")
        found = super().to_internal_value(data)
        return {name: dict(each) for name, each in found.items()}


class KindsField(BoundedList):
    """Field for kinds, each once. An empty list allows no kind."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=s.ChoiceField(choices=Kind.choices), max_length=len(Kind), **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class BytesByKindField(s.DictField):
    """Field for numbers of bytes by kind."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=StrictInteger(min_value=0, max_value=MAX_BYTES), **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted({*data} - {*Kind.values})[:1] if isinstance(data, dict) else []
        if unknown:
            raise s.ValidationError(f"{unknown[0]!r} is not a kind. Kinds are: {', '.join(Kind.values)}.")
        return super().to_internal_value(data)


class KindsByTierField(s.DictField):
    """Field for kinds by the code of a plan."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=KindsField(), **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            if len(data) > MAX_TIERS:
                raise s.ValidationError(f"At most {MAX_TIERS} tiers.")
            if not all(TIER.fullmatch(tier) for tier in data):
                raise s.ValidationError("A tier is the code of a plan: 1 to 40 letters, digits, hyphens, underscores.")
        return super().to_internal_value(data)


def _number(**kwargs: Any) -> StrictInteger:
    return StrictInteger(min_value=0, max_value=MAX_BYTES, required=False, allow_null=True, **kwargs)


class CdnPolicyRequest(s.Serializer[Any]):
    """Fields of a policy. A field that is left out does not change.

    Null inherits; zero means zero, and an empty list allows nothing.
    """

    allowedKinds = KindsField(required=False, allow_null=True)
    maxFileBytes = BytesByKindField(required=False, allow_null=True, help_text="Most bytes of a file, by kind.")
    maxTotalBytes = _number(help_text="Stored bytes. The smaller of this and `cdn_max_bytes` applies.")
    monthlyUploadBytes = _number(help_text="The smaller of this and `cdn_monthly_bytes` applies.")
    maxFiles = _number(help_text="Active files, files in the trash, and files that are being uploaded.")
    maxConcurrentUploads = _number(help_text="Permits whose upload has not ended.")
    maxWidth = StrictInteger(min_value=0, max_value=MAX_SIDE, required=False, allow_null=True)
    maxHeight = StrictInteger(min_value=0, max_value=MAX_SIDE, required=False, allow_null=True)
    maxDurationSeconds = StrictFloat(min_value=0, max_value=MAX_SECONDS, required=False, allow_null=True)
    maxVariants = _number()
    tierMediaAccess = KindsByTierField(
        required=False,
        allow_null=True,
        help_text="For each tier, the kinds that its accounts may store within `allowedKinds`. The tier of an account "
        "is the code of its plan. A tier that is not listed is not restricted.",
    )
