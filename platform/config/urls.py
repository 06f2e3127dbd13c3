"""Every route. Each app of `config.app_list` brings its own; the documented ones are in the OpenAPI document."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from config.api_document import api_document
from config.app_list import url_modules
from config.health import healthz, readyz
from config.metrics_page import metrics
from config.page_policies import docs_page
from staff.parts.input import search_page

handler400 = "common.responses.bad_request"
handler404 = "common.responses.not_found"
handler500 = "common.responses.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("openapi.json", api_document, name="openapi"),
    # Its script is a file of its own, which the page's policy allows.
    path("docs", docs_page(SpectacularSwaggerSplitView.as_view(url_name="openapi", url_self="/docs"))),
    path("admin/second-factor/", include("staff.second_factor.pages")),
    path("admin/search/", admin.site.admin_view(search_page)),  # before unfold's own
    path("admin/", admin.site.urls),
    *[path("", include(module)) for module in url_modules()],
]
