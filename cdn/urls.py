from django.urls import path

from cdn.form_uploads.views import FormLimitsViewSet, FormUploadViewSet
from cdn.limit_views import CdnNamespaceViewSet, CdnUsageViewSet, QuotaDefaultsViewSet
from cdn.uploads.views import ACTIONS, UploadViewSet
from cdn.views import FileViewSet, UploadTokenViewSet

file = FileViewSet.as_view
urlpatterns = [
    path("cdn/token", UploadTokenViewSet.as_view({"post": "create"})),
    path("cdn/uploads/<str:token>", UploadViewSet.as_view(ACTIONS)),
    path("cdn/api", FormUploadViewSet.as_view({"post": "send"})),
    path("cdn/api/limits", FormLimitsViewSet.as_view({"get": "limits"})),
    path("cdn/tags", file({"get": "tags"})),
    path("cdn/stats", file({"get": "stats"})),
    path("cdn/files", file({"get": "list"})),
    path("cdn/files/<slug:file_id>", file({"get": "retrieve", "delete": "destroy"})),
    path("cdn/files/<slug:file_id>/restore", file({"post": "restore"})),
    path("cdn/trash", file({"delete": "empty_trash"})),
    path("cdn/quota-defaults", QuotaDefaultsViewSet.as_view({"get": "retrieve", "put": "update"})),
    path("cdn/namespaces", CdnNamespaceViewSet.as_view({"get": "list"})),
    path("cdn/namespaces/quota", CdnNamespaceViewSet.as_view({"put": "set_quota"})),
    path("cdn/policy", CdnUsageViewSet.as_view({"get": "policy"})),
    path("cdn/usage", CdnUsageViewSet.as_view({"get": "usage"})),
]
