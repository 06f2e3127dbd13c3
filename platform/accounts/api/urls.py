from django.urls import path

from accounts.api.views import CredentialViewSet, TokenViewSet

urlpatterns = [
    path("tokens", TokenViewSet.as_view({"post": "create"})),
    path("credentials", CredentialViewSet.as_view({"post": "create"})),
    path("credentials/<slug:credential_id>", CredentialViewSet.as_view({"delete": "destroy"})),
    path("credentials/<slug:credential_id>/rotate", CredentialViewSet.as_view({"post": "rotate"})),
]
