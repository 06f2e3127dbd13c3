"""Bodies of the CDN routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from cdn.delivery import file_url, variant_url
from cdn.fields import CdnPolicyRequest, TagField
from cdn.models import MAX_BYTES, File, Variant
from cdn.states import FileStatus, Kind
from common.fields import StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp

PERSONAL = "personal"
_NAMESPACE = "The namespace's slug. Default: the whole account, or the credential's own namespace."


class QuotaRequest(s.Serializer[Any]):
    """Limits to set. A field that is left out does not change; null inherits; zero means zero."""

    cdn_max_bytes = StrictInteger(
        min_value=0, max_value=MAX_BYTES, required=False, allow_null=True, help_text="Stored bytes, with the trash."
    )
    cdn_monthly_bytes = StrictInteger(
        min_value=0, max_value=MAX_BYTES, required=False, allow_null=True, help_text="Bytes published in a month (UTC)."
    )
    policy = CdnPolicyRequest(required=False, allow_null=True, help_text="Null removes all fields of the policy.")


class NamespaceQuotaRequest(QuotaRequest):
    namespace = StrictChar(max_length=128)


class CdnNamespacesQuery(s.Serializer[Any]):
    search = s.CharField(required=False, max_length=255, help_text="Part of the name or slug.")


class _PartQuery(s.Serializer[Any]):
    """Query that names a part of the account.

    A parameter with an empty value is an error, because leaving it out means the whole account.
    """

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        blank = [name for name, value in self.initial_data.items() if name in self.fields and value == ""]
        if blank:
            raise s.ValidationError({name: ["Give a value, or leave the parameter out."] for name in blank})
        return attrs


class CdnPolicyQuery(_PartQuery):
    namespace = s.CharField(required=False, max_length=128, help_text="Its slug. Default: files without a namespace.")


class CdnPartQuery(_PartQuery):
    namespace = s.CharField(required=False, max_length=128, help_text=_NAMESPACE)
    scope = s.ChoiceField(choices=[PERSONAL], required=False, help_text="Only files without a namespace.")


class CdnFilesQuery(CdnPartQuery):
    tag = TagField(required=False, help_text="Files with exactly this tag.")
    status = s.ChoiceField(choices=FileStatus.choices, required=False, help_text="Default: all but files in the trash.")


class CdnVariantObject(ResponseSerializer):
    name = s.CharField()
    url = s.CharField()
    width = s.IntegerField()
    height = s.IntegerField()
    size = s.IntegerField()

    def read_url(self, row: Variant) -> str:
        return variant_url(row)


class CdnFileError(ResponseSerializer):
    code = s.CharField()
    message = s.CharField()
    details = s.DictField(required=False)


class CdnFileObject(ResponseSerializer):
    id = s.CharField(source="pk")
    namespace = s.CharField(allow_null=True)
    filename = s.CharField()
    kind = s.ChoiceField(Kind.choices, help_text="By the bytes; until they are inspected, by the claimed type.")
    content_type = BlankAsNull(help_text="By the bytes; null until they are inspected.")
    size = s.IntegerField()
    width = s.IntegerField(
        allow_null=True, help_text="Width as shown, after the rotation that the file asks for (EXIF, matrix)."
    )
    height = s.IntegerField(allow_null=True)
    duration_seconds = s.FloatField(allow_null=True)
    tags = s.ListField(child=s.CharField())
    metadata = s.DictField()
    status = s.ChoiceField(FileStatus.choices)
    error = CdnFileError(allow_null=True, help_text="Why the file was rejected.")
    url = s.CharField(
        allow_null=True, help_text="Null until the file is published; answers 404 while it is in the trash."
    )
    variants = CdnVariantObject(many=True)
    created_at = Timestamp()
    trashed_at = Timestamp(allow_null=True)
    cdn_url = s.CharField(allow_null=True, help_text="The same as `url`.")
    mime_type = BlankAsNull(help_text="The same as `content_type`.")
    tag = s.CharField(allow_null=True, help_text="The first of `tags`.")
    is_deleted = s.BooleanField(help_text="Whether the file is in the trash.")

    def read_cdn_url(self, row: File) -> str | None:
        return self.read_url(row)

    def read_mime_type(self, row: File) -> str:
        return row.content_type

    def read_tag(self, row: File) -> str | None:
        return row.tags[0] if row.tags else None

    def read_is_deleted(self, row: File) -> bool:
        return row.status == FileStatus.TRASHED

    def read_namespace(self, row: File) -> str | None:
        return row.namespace.slug if row.namespace else None

    def read_url(self, row: File) -> str | None:
        return file_url(row) if row.published_at else None

    def read_variants(self, row: File) -> list[Variant]:
        return list(row.variants.all())


class CdnFileResponse(Success):
    file = CdnFileObject()
    data = CdnFileObject(source="file", help_text="The same as `file`.")  # type: ignore[assignment]


class CdnTagsObject(ResponseSerializer):
    namespace = s.CharField(allow_null=True)
    tags = s.ListField(child=s.CharField(), help_text="In alphabetical order, at most 1,000.")


class CdnTagsResponse(Success):
    data = CdnTagsObject()  # type: ignore[assignment]


class CdnStatsObject(ResponseSerializer):
    totalFiles = s.IntegerField(help_text="Files, including the trash.")
    totalSize = s.IntegerField(help_text="Bytes of files and their variants, including the trash.")
    activeFiles = s.IntegerField()
    activeSize = s.IntegerField()
    uploadedFiles = s.IntegerField(help_text="Files that were uploaded: the same as `totalFiles`.")
    urlFiles = s.IntegerField(help_text="Files that are fetched from elsewhere: always 0.")


class CdnStatsResponse(Success):
    data = CdnStatsObject()  # type: ignore[assignment]


class CdnPurgedResponse(Success):
    accepted = s.BooleanField(required=False, help_text="True with 202: the removal of the last files goes on.")
    message = s.CharField()
    deleted = s.IntegerField(help_text="Number of deleted files.")


class CdnQuotaObject(ResponseSerializer):
    cdn_max_bytes = s.IntegerField(allow_null=True)
    cdn_monthly_bytes = s.IntegerField(allow_null=True)
    policy = s.DictField(allow_null=True)


class CdnQuotaResponse(Success):
    data = CdnQuotaObject()  # type: ignore[assignment]


class CdnNamespaceQuotaObject(CdnQuotaObject):
    namespace = s.CharField()


class CdnNamespaceQuotaResponse(Success):
    data = CdnNamespaceQuotaObject()  # type: ignore[assignment]


class CdnLimitsObject(ResponseSerializer):
    """Limits in force. If two limits count the same bytes the smaller one applies, at most the account's."""

    cdn_max_bytes = s.IntegerField(allow_null=True)
    cdn_monthly_bytes = s.IntegerField(allow_null=True)
    maxFiles = s.IntegerField(allow_null=True)
    maxConcurrentUploads = s.IntegerField(allow_null=True)


class CdnNamespaceObject(ResponseSerializer):
    namespace = s.CharField()
    files = s.IntegerField(help_text="Number of active files.")
    active_bytes = s.IntegerField(help_text="Bytes of active files and their variants.")
    month_bytes = s.IntegerField()
    limits = CdnLimitsObject()
    override = CdnQuotaObject(allow_null=True)
    has_override = s.BooleanField()


class CdnEffectiveObject(ResponseSerializer):
    cdn_max_bytes = s.IntegerField(allow_null=True)
    cdn_monthly_bytes = s.IntegerField(allow_null=True)
    policy = s.DictField(help_text="All fields; null if there is no limit.")
    sources = s.DictField(
        child=s.CharField(), help_text="Where each value comes from: `namespace`, `account` (the template) or `plan`."
    )
    clamped = s.ListField(child=s.CharField(), help_text="Fields for which more was set than the plan allows.")


class CdnPlanObject(CdnQuotaObject):
    code = s.CharField(help_text="The account's plan, which is also its tier.")


class CdnPolicyObject(ResponseSerializer):
    namespace = s.CharField(allow_null=True)
    effective = CdnEffectiveObject()
    override = CdnQuotaObject(allow_null=True)
    account = CdnQuotaObject(help_text="The account's template, as it was set.")
    plan = CdnPlanObject()


class CdnPolicyResponse(Success):
    data = CdnPolicyObject()  # type: ignore[assignment]


class CdnCountsObject(ResponseSerializer):
    bytes = s.IntegerField()
    files = s.IntegerField()


class CdnUsageObject(ResponseSerializer):
    namespace = s.CharField(allow_null=True)
    period = s.CharField(help_text="The month (UTC), such as `2026-11`.")
    ingest = CdnCountsObject(help_text="Published in the month; deleted files stay counted.")
    active = CdnCountsObject()
    trash = CdnCountsObject()
    reserved = CdnCountsObject(help_text="Reserved by uploads that are not published yet.")
    limits = CdnLimitsObject()


class CdnUsageResponse(Success):
    data = CdnUsageObject()  # type: ignore[assignment]
