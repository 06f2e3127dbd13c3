"""Code assistance: three routes that ask a model (wire contract, section 8)."""

from __future__ import annotations

from django.apps import AppConfig
from django.http import HttpRequest


class AssistConfig(AppConfig):
    name = "assist"
    verbose_name = "Code assistance"

    def ready(self) -> None:
        from accounts.hooks import sender_of_body
        from assist.error_form import PREFIX, assist_error_response
        from common.error_forms import register_error_form

        register_error_form(PREFIX, assist_error_response, bodies_by_view=True)
        sender_of_body.register(_sender_of_assist_body)


def _sender_of_assist_body(request: HttpRequest) -> str | None:
    """Return the account of the API key that a request to these routes carries. Raise InvalidApiKey, TooManyFailures.

    The module of keys is imported with the first such request: processes that serve no requests do without it.
    """
    from assist.error_form import PREFIX

    if not request.path.startswith(f"{PREFIX}/"):
        return None
    from assist.authentication import require_key

    return require_key(request).account_id
