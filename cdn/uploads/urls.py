"""The route of uploads, included by the app's."""

from django.urls import path

from cdn.uploads.views import UploadViewSet

ACTIONS = {
    "put": "send_file",
    "patch": "send_part",
    "head": "show_status",
    "options": "describe",
    "post": "override",
}

urlpatterns = [path("cdn/uploads/<str:token>", UploadViewSet.as_view(ACTIONS))]
