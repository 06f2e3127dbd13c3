from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        from accounts.session_times import session_begin

        user_logged_in.connect(session_begin, dispatch_uid="accounts.session_times")
