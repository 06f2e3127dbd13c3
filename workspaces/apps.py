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
        from workspaces import placement, route_cache, selectors, transitions

        hooks.workspace_binding.register(selectors.scope_binding)
        auth_fast_path.register(_edge_auth)
        transitions.left_running.register(route_cache.invalidate_routes)
        placement.held_addresses.register(route_cache.held_addresses)


def _edge_auth(application: WSGIApplication) -> WSGIApplication:
    # Only the api process needs it.
    from workspaces.edge_auth.fast_path import EdgeAuthFastPath

    return EdgeAuthFastPath(application)
