from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "dashboard"

    def ready(self) -> None:
        from django.contrib import admin

        admin.site.index_template = "dashboard/index.html"
        admin.site.index_title = "Dashboard"
