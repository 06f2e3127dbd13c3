"""The project's own app: it brings the system checks."""

from django.apps import AppConfig


class PlatformConfig(AppConfig):
    name = "config"
    label = "platform_config"

    def ready(self) -> None:
        from config import checks  # noqa: F401
