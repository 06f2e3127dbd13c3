from django.apps import AppConfig
from django.conf import settings


class DashboardConfig(AppConfig):
    name = "dashboard"

    def ready(self) -> None:
        if not settings.SHOWS_ADMIN:
            return
        from django.contrib import admin

        from dashboard import panels  # noqa: F401  # registers what pages show

        admin.site.index_template = "dashboard/index.html"
        admin.site.index_title = "Dashboard"
