from django.urls import path

from credits.views import CreditsViewSet, QuotaDefaultViewSet

urlpatterns = [
    path("credits/namespace-quota", CreditsViewSet.as_view({"post": "set_quota"})),
    path("credits/reset-quota", CreditsViewSet.as_view({"post": "reset_quota"})),
    path("credits/namespaces", CreditsViewSet.as_view({"get": "list"})),
    path("credits/namespaces/<slug:namespace>", CreditsViewSet.as_view({"get": "retrieve"})),
    path("credits/defaults", QuotaDefaultViewSet.as_view({"get": "retrieve", "post": "create", "delete": "destroy"})),
    path("credits/defaults/all", QuotaDefaultViewSet.as_view({"get": "list_all"})),
    path("credits/defaults/toggle-auto-apply", QuotaDefaultViewSet.as_view({"post": "toggle_auto_apply"})),
    path("namespaces/<slug:namespace_id>/usage", CreditsViewSet.as_view({"get": "usage"})),
]
