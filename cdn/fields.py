"""Fields of requests that the CDN alone has: names, tags, metadata, variants, policies."""

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
    """Raises a validation error for more UTF-8 bytes, for none, and for control characters."""
    if not 0 < len(data.encode()) <= most:
        raise s.ValidationError(f"{what} has 1 to {most} bytes in UTF-8.")
    if any(unicodedata.category(each) == "Cc" for each in data):
        raise s.ValidationError(f"{what} has no control characters.")
    return data


class FilenameField(StrictChar):
    """What the client calls the file; it is shown, and names nothing that is stored."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        return plain_text(super().to_internal_value(data), FILENAME_BYTES, "A file name")


class TypeField(StrictChar):
    """A media type as a client claims it; empty: it does not know."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        return plain_text(text, FILENAME_BYTES, "A media type") if text else text


class TagField(StrictChar):
    """Exact and case-sensitive (specification, CDN quota fields)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = plain_text(super().to_internal_value(data), TAG_BYTES, "A tag")
        if text != text.strip():
            raise s.ValidationError("A tag neither begins nor ends with whitespace.")
        return text


class TagsField(BoundedList):
    """Each tag once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TagField(), max_length=MAX_TAGS, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        tags = super().to_internal_value(data)
        if len(set(tags)) < len(tags):
            raise s.ValidationError("Each tag is given once.")
        return tags


class MetadataField(JSONObject):
    """An object of at most 16 KiB as JSON."""

    def to_internal_value(self, data: Any) -> Any:
        value = super().to_internal_value(data)
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        if size > METADATA_BYTES:
            raise s.ValidationError(f"At most {METADATA_BYTES} bytes as JSON; it would be {size}.")
        return value


class VariantRequest(s.Serializer[Any]):
    """A smaller copy. One side may be left out: it follows from the other; without both only the format changes."""

    width = StrictInteger(min_value=1, max_value=VARIANT_SIDE_MAX, required=False)
    height = StrictInteger(min_value=1, max_value=VARIANT_SIDE_MAX, required=False)
    fit = s.ChoiceField(choices=FITS, default=FITS[0])
    format = s.ChoiceField(choices=sorted(VARIANT_FORMATS), required=False, help_text="Default: the file's own.")
    quality = StrictInteger(min_value=1, max_value=100, required=False)


class VariantsField(s.DictField):
    """Name to variant; the name becomes a part of its address."""

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
    """Each kind once; an empty list allows none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=s.ChoiceField(choices=Kind.choices), max_length=len(Kind), **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class BytesByKindField(s.DictField):
    """Kind to a number of bytes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=StrictInteger(min_value=0, max_value=MAX_BYTES), **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted({*data} - {*Kind.values})[:1] if isinstance(data, dict) else []
        if unknown:
            raise s.ValidationError(f"{unknown[0]!r} is no kind; kinds are: {', '.join(Kind.values)}.")
        return super().to_internal_value(data)


class KindsByTierField(s.DictField):
    """The code of a plan to kinds."""

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
    """A field that is left out stays as it is; null inherits it; zero is zero, and an empty list allows nothing."""

    allowedKinds = KindsField(required=False, allow_null=True)
    maxFileBytes = BytesByKindField(required=False, allow_null=True, help_text="By kind.")
    maxTotalBytes = _number(help_text="Stored bytes; the smaller of this and `cdn_max_bytes` holds.")
    monthlyUploadBytes = _number(help_text="The smaller of this and `cdn_monthly_bytes` holds.")
    maxFiles = _number(help_text="Active files, those of the trash, and those that are being uploaded.")
    maxConcurrentUploads = _number(help_text="Permits whose upload has not ended.")
    maxWidth = StrictInteger(min_value=0, max_value=MAX_SIDE, required=False, allow_null=True)
    maxHeight = StrictInteger(min_value=0, max_value=MAX_SIDE, required=False, allow_null=True)
    maxDurationSeconds = StrictFloat(min_value=0, max_value=MAX_SECONDS, required=False, allow_null=True)
    maxVariants = _number()
    tierMediaAccess = KindsByTierField(
        required=False,
        allow_null=True,
        help_text="Tier to the kinds that accounts of this tier may store, beside `allowedKinds`. The tier of an "
        "account is the code of its plan; a tier that is not listed is not restricted.",
    )
