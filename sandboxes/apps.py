from django.apps import AppConfig


class SandboxesConfig(AppConfig):
    name = "sandboxes"

    def ready(self) -> None:
        from sandboxes.level import openapi  # noqa: F401 registers itself
