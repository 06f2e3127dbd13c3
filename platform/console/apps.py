from django.apps import AppConfig, apps
from django.conf import settings
from django.db.models.signals import post_migrate


class ConsoleConfig(AppConfig):
    name = "console"
    verbose_name = "Console"

    def ready(self) -> None:
        from console.roles import after_migrate

        # The signal is sent for each app, in the order of the settings; Django's own receiver makes the permissions.
        *_, last = (app for app in apps.get_app_configs() if app.models_module is not None)
        post_migrate.connect(after_migrate, sender=last, dispatch_uid="console.roles")
        if not settings.SHOWS_ADMIN:
            return
        from django.contrib import admin

        from console import panels  # noqa: F401  # registers what pages show

        admin.site.index_template = "console/index.html"
        admin.site.index_title = "Dashboard"
