"""Bodies of permits, upload tokens and uploads by form."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers as s

from cdn.fields import MAX_TAGS, FilenameField, MetadataField, TagField, TagsField, TypeField, VariantsField
from cdn.models import MAX_BYTES
from cdn.serializers import CdnVariantObject
from common.fields import StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import Timestamp

_OF_A_FILE = ("filename", "size", "contentType")


class UploadTokenRequest(s.Serializer[Any]):
    """Request for a permit for one file (`filename`, `size` and `contentType`), or for an upload token (none of
    these).
    """

    namespace = StrictChar(
        max_length=128, required=False, allow_null=True, help_text="Slug. Default: the credential's own, or none."
    )
    filename = FilenameField(required=False, help_text="1 to 255 bytes in UTF-8.")
    size = StrictInteger(min_value=0, max_value=MAX_BYTES, required=False, help_text="Bytes that may be sent at most.")
    contentType = TypeField(
        required=False, allow_blank=True, help_text="Claimed type; the real type is found from the bytes."
    )
    tag = TagField(required=False, help_text="Becomes the first of the tags.")
    tags = TagsField(required=False)
    variants = VariantsField(required=False, help_text="For pictures only; at most `maxVariants`.")
    metadata = MetadataField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in _OF_A_FILE if name not in attrs]
        if missing and len(missing) < len(_OF_A_FILE):
            message = "Give filename, size and contentType for a permit, or none of them for an upload token."
            raise s.ValidationError({name: [message] for name in missing})
        first = [attrs.pop("tag")] if "tag" in attrs else []
        attrs["tags"] = list(dict.fromkeys([*first, *attrs.get("tags", [])]))
        if len(attrs["tags"]) > MAX_TAGS:
            raise s.ValidationError({"tags": [f"At most {MAX_TAGS} tags, with `tag`."]})
        return attrs


class UploadTokenResponse(Success):
    """Permit for one file."""

    token = s.CharField(help_text="Part of `uploadUrl`; shown only once.")
    uploadUrl = s.CharField(
        help_text="PUT the bytes to it, or use it as a tus 1.0 upload. It needs no other credential."
    )
    expiresAt = Timestamp(help_text="Time by which the upload must have begun.")
    fileId = s.CharField()


class UserTokenResponse(Success):
    """Upload token."""

    token = s.CharField(help_text="Bearer token for `apiUrl`; shown only once.")
    scope = s.CharField(help_text="Always `user`.")
    permissions = s.ListField(child=s.CharField(), help_text="Always `upload`.")
    namespace = s.CharField(allow_null=True, help_text="Namespace of the files; null if they are unassigned.")
    expiresIn = s.CharField(help_text="`1m`, which means one minute.")
    apiUrl = s.CharField(help_text="`POST` a form with the field `file` to `/` below it; `GET` its `/limits`.")


@extend_schema_field(OpenApiTypes.BINARY)
class FormFileField(s.FileField):
    """Bytes of a file. Without this class the schema would describe the field as the address of a file."""


class CdnFormRequest(s.Serializer[Any]):
    file = FormFileField(help_text="The file; its part of the form must have a file name.")


class CdnFormResponse(Success):
    file_id = s.CharField()
    url = s.CharField(allow_null=True, help_text="Null with 202, until the file is published.")
    filename = s.CharField()
    size = s.IntegerField()
    mime = s.CharField(allow_null=True, help_text="By the bytes; null until they are inspected.")
    variants = CdnVariantObject(many=True)
    recorded = s.BooleanField(help_text="Always true: the file is listed at `/cdn/files`.")


class CdnFormLimitsResponse(Success):
    limits = s.DictField(
        child=s.IntegerField(), help_text="Most bytes of a file, by kind; kinds without a limit are left out."
    )
    totalLimit = s.IntegerField(allow_null=True, help_text="Most stored bytes, with the trash.")
    maxFiles = s.IntegerField(allow_null=True)
