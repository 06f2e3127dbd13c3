from django.urls import path

from webhooks.views import WebhookDeliveryViewSet, WebhookViewSet

ONE = "webhooks/<int:webhook_id>"
urlpatterns = [
    path("webhooks", WebhookViewSet.as_view({"get": "list", "post": "create"})),
    path("webhooks/events", WebhookViewSet.as_view({"get": "events"})),
    path("webhooks/deliveries/<slug:delivery_id>/redeliver", WebhookDeliveryViewSet.as_view({"post": "redeliver"})),
    path(ONE, WebhookViewSet.as_view({"put": "update", "delete": "destroy"})),
    path(f"{ONE}/test", WebhookViewSet.as_view({"post": "test"})),
    path(f"{ONE}/deliveries", WebhookDeliveryViewSet.as_view({"get": "list"})),
    path(f"{ONE}/redeliver", WebhookViewSet.as_view({"post": "redeliver"})),
    path(f"{ONE}/rotate", WebhookViewSet.as_view({"post": "rotate"})),
]
