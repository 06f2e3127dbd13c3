"""Every route. Each app brings its own; the documented ones are listed in the OpenAPI document."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from config.health import healthz

handler400 = "common.responses.bad_request"
handler404 = "common.responses.not_found"
handler500 = "common.responses.server_error"

urlpatterns = [
    # The first, as it is asked most often: for each request to a public port.
    path("internal/edge/", include("workspaces.edge_auth.urls")),
    path("healthz", healthz),
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", SpectacularSwaggerView.as_view(url_name="openapi")),
    path("admin/", admin.site.urls),
    path("", include("accounts.api.urls")),
    path("", include("workspaces.urls")),
]
