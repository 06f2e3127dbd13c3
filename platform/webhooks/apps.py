from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from accounts.hooks import account_deletion_begins
        from webhooks.subscriptions import account_subscriptions_lock

        account_deletion_begins.register(account_subscriptions_lock)
