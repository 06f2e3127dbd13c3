from django.apps import AppConfig


class NamespacesConfig(AppConfig):
    name = "namespaces"

    def ready(self) -> None:
        from accounts import hooks
        from namespaces import audit, selectors, services
        from staff.hooks import reason_given
        from webhooks.hooks import namespace_webhook_changed

        hooks.account_created.register(services.default_namespace_create)
        hooks.account_deletion_begins.register(services.account_namespaces_lock)
        hooks.namespace_binding.register(selectors.scope_binding)
        reason_given.register(audit.record_reason)
        namespace_webhook_changed.register(audit.record_webhook_entry)
