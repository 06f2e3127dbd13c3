from django.apps import AppConfig


class WorkspacesConfig(AppConfig):
    name = "workspaces"

    def ready(self) -> None:
        from accounts import hooks
        from workspaces import selectors, vmhost  # noqa: F401 vmhost connects to Celery's signals

        hooks.workspace_pin.register(selectors.pin)
