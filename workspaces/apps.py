from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class WorkspacesConfig(AppConfig):
    name = "workspaces"

    def ready(self) -> None:
        from accounts import hooks
        from edge.hooks import auth_fast_path
        from workspaces import selectors, vmhost  # noqa: F401 vmhost connects to Celery's signals

        hooks.workspace_pin.register(selectors.pin)
        auth_fast_path.register(_edge_auth)


def _edge_auth(application: WSGIApplication) -> WSGIApplication:
    # Only the api process needs it.
    from workspaces.network.door import Door

    return Door(application)
