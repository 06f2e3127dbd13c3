"""Every route. Each app of `config.app_list` brings its own; the documented ones are in the OpenAPI document."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from config.app_list import url_modules
from config.health import healthz

handler400 = "common.responses.bad_request"
handler404 = "common.responses.not_found"
handler500 = "common.responses.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", SpectacularSwaggerView.as_view(url_name="openapi")),
    path("admin/", admin.site.urls),
    *[path("", include(module)) for module in url_modules()],
]
