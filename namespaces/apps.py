from django.apps import AppConfig


class NamespacesConfig(AppConfig):
    name = "namespaces"

    def ready(self) -> None:
        from accounts import hooks
        from namespaces import selectors, services

        hooks.account_created.register(services.default_namespace_create)
        hooks.namespace_binding.register(selectors.scope_binding)
