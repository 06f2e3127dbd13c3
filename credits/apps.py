from django.apps import AppConfig


class CreditsConfig(AppConfig):
    name = "credits"

    def ready(self) -> None:
        from credits import enforcement
        from namespaces import hooks

        hooks.quota_error.register(enforcement.suspension_error)
