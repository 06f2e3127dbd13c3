from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        from accounts.session_times import begin_session

        user_logged_in.connect(begin_session, dispatch_uid="accounts.session_times")
