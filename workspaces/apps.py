from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class WorkspacesConfig(AppConfig):
    name = "workspaces"

    def ready(self) -> None:
        from accounts import hooks
        from domains import hooks as domain_hooks
        from edge.hooks import auth_fast_path
        from namespaces import hooks as namespace_hooks
        from staff.hooks import reason_given
        from workspaces import audit, namespace_members, placement, route_cache, selectors, transitions
        from workspaces.custom_domains import targets
        from workspaces.network.services import account_ports_follow

        hooks.workspace_binding.register(selectors.scope_binding)
        hooks.account_switched.register(account_ports_follow)
        auth_fast_path.register(_edge_auth)
        transitions.left_running.register(route_cache.invalidate_routes)
        placement.held_addresses.register(route_cache.held_addresses)
        reason_given.register(audit.record_reason)
        domain_hooks.served_targets.register(targets.served_workspaces)
        domain_hooks.target_lock.register(targets.workspace_lock)
        domain_hooks.domain_event.register(targets.domain_event)
        namespace_hooks.workspaces_count.register(namespace_members.count_members)
        namespace_hooks.workspaces_stop.register(namespace_members.stop_members)
        namespace_hooks.workspaces_move.register(namespace_members.move_members)
        namespace_hooks.contents_move.register(namespace_members.move_snapshots)
        namespace_hooks.workspaces_delete.register(namespace_members.delete_members)


def _edge_auth(application: WSGIApplication) -> WSGIApplication:
    # Only the api process needs it.
    from workspaces.edge_auth.fast_path import EdgeAuthFastPath

    return EdgeAuthFastPath(application)
