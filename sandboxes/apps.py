from django.apps import AppConfig


class SandboxesConfig(AppConfig):
    name = "sandboxes"

    def ready(self) -> None:
        from accounts.hooks import sender_of_body
        from sandboxes.tokens import sender_of_sandbox_body

        sender_of_body.register(sender_of_sandbox_body)
