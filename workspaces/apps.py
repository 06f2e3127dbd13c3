from django.apps import AppConfig


class WorkspacesConfig(AppConfig):
    name = "workspaces"

    def ready(self) -> None:
        from accounts import hooks
        from workspaces import placement, route_cache, selectors, transitions

        hooks.workspace_binding.register(selectors.scope_binding)
        transitions.left_running.register(route_cache.shut)
        placement.held_addresses.register(route_cache.held_addresses)
