"""Views of `/cdn`: permits and files (specification, CDN quota routes; wire contract, section 9)."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from cdn import serializers as bodies
from cdn import upload_serializers as uploads
from cdn import upload_tokens
from cdn.models import File
from cdn.pagination import FilesPagination
from cdn.selectors import count_files, get_file, listed_files, part_of, tags_of, upload_namespace
from cdn.services import files, permits
from cdn.upload_tokens import UploadTerms
from common.openapi import MessageResponse, refused
from common.request_origin import request_origin
from common.requests import validated, validated_query
from common.responses import respond
from edge.addresses import cdn_address
from edge.cdn_site import API_PATH

PERMIT_REFUSALS = {
    400: "`validation_error`; `cdn_policy_violation`: kind, size or number of variants (`details`: rule, limit, "
    "actual)",
    402: "`cdn_quota_exceeded`: no room (`details`: limit, used, reserved, requested, scope, name); `quota_exceeded`: "
    "the credits of the service `cdn` are used up",
    403: "`forbidden`: the credential is bound to another namespace; `namespace_suspended`",
    404: "`not_found`: there is no such namespace",
}


class UploadTokenViewSet(ViewSet):
    """Permits to upload; account or namespace scope."""

    scopes = NAMESPACE_SCOPES

    @extend_schema(
        request=uploads.UploadTokenRequest,
        responses={
            201: PolymorphicProxySerializer(
                component_name="UploadToken",
                serializers=[uploads.UploadTokenResponse, uploads.UserTokenResponse],
                resource_type_field_name=None,
            ),
            **refused(PERMIT_REFUSALS),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a permit for one upload: its bytes, with an upper bound for variants, are reserved, and its credits
        held.

        A variant reserves 64 KiB and at most twice the file, or four bytes for each of its pixels if that is less. An
        upload must begin within 15 minutes and end within an hour after that (settings); otherwise everything is given
        back. Type and size of the received file are checked again before it is published. A file of size 0 is complete
        at once. Without `filename`, `size` and `contentType` the answer is an upload token: for a minute it is the
        bearer token of uploads by form at `apiUrl`. Each of these uploads makes a permit for the size that comes.
        """
        data = validated(uploads.UploadTokenRequest, request)
        terms = UploadTerms(
            namespace=upload_namespace(request.user, data.get("namespace")),
            tags=data["tags"],
            variants=data.get("variants", {}),
            metadata=data.get("metadata", {}),
        )
        if "filename" not in data:
            return self._user_token(request, terms)
        issued = permits.permit_create(
            account=request.user.account,
            new=permits.NewFile(
                namespace=terms.namespace,
                filename=data["filename"],
                size=data["size"],
                content_type=data["contentType"],
                tags=terms.tags,
                variants=terms.variants,
                metadata=terms.metadata,
            ),
            actor=request.user.label,
        )
        return respond(
            uploads.UploadTokenResponse,
            201,
            token=issued.token,
            uploadUrl=f"{settings.BASE_URL.rstrip('/')}/cdn/uploads/{issued.token}",
            expiresAt=issued.permit.expires_at,
            fileId=issued.file.pk,
        )

    def _user_token(self, request: ApiRequest, terms: UploadTerms) -> Response:
        permits.require_payer(request.user.account, terms.namespace)
        return respond(
            uploads.UserTokenResponse,
            201,
            token=upload_tokens.upload_token_mint(request.user, terms),
            scope=upload_tokens.SCOPE,
            permissions=list(upload_tokens.PERMISSIONS),
            namespace=terms.namespace.slug if terms.namespace else None,
            expiresIn=upload_tokens.SHOWN_SECONDS,
            apiUrl=cdn_address(settings.ENV.cdn_url).url(API_PATH),
        )


class FileViewSet(GenericViewSet[Any]):
    """Files and the trash; account or namespace scope."""

    scopes = NAMESPACE_SCOPES
    queryset = File.objects.all()
    serializer_class = bodies.CdnFileObject
    pagination_class = FilesPagination

    @extend_schema(parameters=[bodies.CdnFilesQuery])
    def list(self, request: ApiRequest) -> Response:
        """List files, newest first; without a status, all that are not in the trash. A credential of a namespace lists
        the files of that namespace. A credential of the account lists all files, the files of `namespace`, or with
        `scope=personal` the files without a namespace.
        """
        query = validated_query(bodies.CdnFilesQuery, request)
        part = part_of(request.user, query.get("namespace"), personal="scope" in query)
        status, tag = query.get("status"), query.get("tag")
        cast(FilesPagination, self.paginator).total_of = lambda: count_files(part, status, tag)
        page = self.paginate_queryset(listed_files(part, status, tag))
        return self.get_paginated_response(bodies.CdnFileObject(page, many=True).data)

    @extend_schema(parameters=[bodies.CdnPartQuery], responses=bodies.CdnTagsResponse)
    def tags(self, request: ApiRequest) -> Response:
        """List the tags of files that are neither rejected nor in the trash, each once, of the account or a
        part of it.
        """
        query = validated_query(bodies.CdnPartQuery, request)
        part = part_of(request.user, query.get("namespace"), personal="scope" in query)
        shown = {"namespace": part.namespace.slug if part.namespace else None, "tags": tags_of(part)}
        return respond(bodies.CdnTagsResponse, data=shown)

    @extend_schema(parameters=[bodies.CdnPartQuery], responses=bodies.CdnStatsResponse)
    def stats(self, request: ApiRequest) -> Response:
        """Return the number of files and their bytes, of the account or a part of it."""
        query = validated_query(bodies.CdnPartQuery, request)
        pool = part_of(request.user, query.get("namespace"), personal="scope" in query).pool
        total = pool.stored_files + pool.trashed_files
        shown = {
            "totalFiles": total,
            "totalSize": pool.stored_bytes + pool.trashed_bytes,
            "activeFiles": pool.stored_files,
            "activeSize": pool.stored_bytes,
            "uploadedFiles": total,
            "urlFiles": 0,
        }
        return respond(bodies.CdnStatsResponse, data=shown)

    @extend_schema(responses=bodies.CdnFileResponse)
    def retrieve(self, request: ApiRequest, file_id: str) -> Response:
        """Return one file. Rejected files are kept for a day (a setting), with the reason."""
        return respond(bodies.CdnFileResponse, file=get_file(request.user, file_id))

    @extend_schema(responses={200: MessageResponse, **refused({409: "`invalid_state`: the file was rejected"})})
    def destroy(self, request: ApiRequest, file_id: str) -> Response:
        """Move a file to the trash, or cancel its upload. From the next request on it is not delivered. Idempotent.

        Files in the trash count as stored until it is emptied; the month's usage is not given back.
        """
        found = get_file(request.user, file_id)
        changed = files.file_trash(file=found, **_by(request))
        is_trashed = changed.trashed_at is not None
        return respond(
            MessageResponse, message="The file is in the trash." if is_trashed else "The upload is cancelled."
        )

    @extend_schema(
        request=None,
        responses={
            200: bodies.CdnFileResponse,
            **refused(
                {
                    402: "`cdn_quota_exceeded`: no room, because a quota was lowered meanwhile (`details`)",
                    409: "`invalid_state`: the file is not in the trash",
                }
            ),
        },
    )
    def restore(self, request: ApiRequest, file_id: str) -> Response:
        """Take a file out of the trash: it is delivered at its former address again. Idempotent."""
        restored = files.file_restore(file=get_file(request.user, file_id), **_by(request))
        return respond(bodies.CdnFileResponse, file=restored)

    @extend_schema(
        parameters=[bodies.CdnPartQuery],
        responses={200: bodies.CdnPurgedResponse, 202: bodies.CdnPurgedResponse},
    )
    def empty_trash(self, request: ApiRequest) -> Response:
        """Delete the files in the trash of the namespace, of files without one (`scope=personal`), or of the
        account.
        """
        query = validated_query(bodies.CdnPartQuery, request)
        part = part_of(request.user, query.get("namespace"), personal="scope" in query)
        count, ended = files.trash_purge(account=request.user.account, within=part.files, **_by(request))
        fields = {"message": f"Deleted {count} files." if ended else f"Deleting {count} files.", "deleted": count}
        if ended:
            return respond(bodies.CdnPurgedResponse, **fields)
        return respond(bodies.CdnPurgedResponse, 202, accepted=True, **fields)


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return who does it, for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}
