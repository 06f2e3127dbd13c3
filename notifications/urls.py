from django.urls import path

# Registers itself; with the routes, as a process without them needs no description of them.
from notifications import openapi  # noqa: F401
from notifications.browser_page.views import BrowserPageViewSet
from notifications.views import DeviceViewSet, SendTokenViewSet, SendViewSet, WebPushKeyViewSet

urlpatterns = [
    path("notifications/send", SendViewSet.as_view({"post": "create"})),
    path("notifications/tokens", SendTokenViewSet.as_view({"get": "list", "post": "create"})),
    path("notifications/tokens/<slug:token_id>/revoke", SendTokenViewSet.as_view({"post": "revoke"})),
    path("notifications/tokens/<slug:token_id>", SendTokenViewSet.as_view({"delete": "destroy"})),
    path("notifications/devices", DeviceViewSet.as_view({"get": "list", "post": "create"})),
    path("notifications/devices/<str:device_id>", DeviceViewSet.as_view({"delete": "destroy"})),
    path("notifications/browser", BrowserPageViewSet.as_view({"get": "read", "head": "read"})),
    path("notifications/browser/<str:name>", BrowserPageViewSet.as_view({"get": "read", "head": "read"})),
    path("notifications/web-push-key", WebPushKeyViewSet.as_view({"get": "retrieve"})),
]
