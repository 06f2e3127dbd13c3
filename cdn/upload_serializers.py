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
    """With `filename`, `size` and `contentType` a permit for one file, without all three an upload token."""

    namespace = StrictChar(
        max_length=128, required=False, allow_null=True, help_text="The slug; default: the credential's own, or none."
    )
    filename = FilenameField(required=False, help_text="1 to 255 bytes in UTF-8.")
    size = StrictInteger(
        min_value=0, max_value=MAX_BYTES, required=False, help_text="In bytes; at most as many may be sent."
    )
    contentType = TypeField(required=False, allow_blank=True, help_text="A claim; the type is found from the bytes.")
    tag = TagField(required=False, help_text="The first of the tags.")
    tags = TagsField(required=False)
    variants = VariantsField(required=False, help_text="Of pictures; at most `maxVariants`.")
    metadata = MetadataField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in _OF_A_FILE if name not in attrs]
        if missing and len(missing) < len(_OF_A_FILE):
            message = "This field is required beside the others of a file; an upload token is asked for without them."
            raise s.ValidationError({name: [message] for name in missing})
        first = [attrs.pop("tag")] if "tag" in attrs else []
        attrs["tags"] = list(dict.fromkeys([*first, *attrs.get("tags", [])]))
        if len(attrs["tags"]) > MAX_TAGS:
            raise s.ValidationError({"tags": [f"At most {MAX_TAGS} tags, with `tag`."]})
        return attrs


class UploadTokenResponse(Success):
    """A permit for one file."""

    token = s.CharField(help_text="A part of `uploadUrl`; shown once.")
    uploadUrl = s.CharField(help_text="PUT the bytes to it, or use it as a tus 1.0 upload. It needs no credential.")
    expiresAt = Timestamp(help_text="When an upload must have begun.")
    fileId = s.CharField()


class UserTokenResponse(Success):
    """An upload token."""

    token = s.CharField(help_text="The bearer at `apiUrl`; shown once.")
    scope = s.CharField(help_text="`user`.")
    permissions = s.ListField(child=s.CharField(), help_text="`upload`.")
    namespace = s.CharField(allow_null=True, help_text="Where the files go; null: they are unassigned.")
    expiresIn = s.CharField(help_text="`1m`: a minute.")
    apiUrl = s.CharField(help_text="`POST` a form with the field `file` to `/` below it; `GET` its `/limits`.")


@extend_schema_field(OpenApiTypes.BINARY)
class FormFileField(s.FileField):
    """The bytes of a file: of other fields of files the schema says that they are the address of one."""


class CdnFormRequest(s.Serializer[Any]):
    file = FormFileField(help_text="With a file name.")


class CdnFormResponse(Success):
    file_id = s.CharField()
    url = s.CharField(allow_null=True, help_text="Null with 202, until it is published.")
    filename = s.CharField()
    size = s.IntegerField()
    mime = s.CharField(allow_null=True, help_text="By the bytes; null before they were looked at.")
    variants = CdnVariantObject(many=True)
    recorded = s.BooleanField(help_text="True: it is a file as all others, below `/cdn/files`.")


class CdnFormLimitsResponse(Success):
    limits = s.DictField(
        child=s.IntegerField(), help_text="Bytes of a file by kind; those without a limit are left out."
    )
    totalLimit = s.IntegerField(allow_null=True, help_text="Stored bytes, with the trash.")
    maxFiles = s.IntegerField(allow_null=True)
