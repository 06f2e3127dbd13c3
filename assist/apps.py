"""Code assistance: three routes that ask a model (wire contract, section 8)."""

from __future__ import annotations

from django.apps import AppConfig


class AssistConfig(AppConfig):
    name = "assist"
    verbose_name = "Code assistance"

    def ready(self) -> None:
        from assist.error_form import PREFIX, assist_error_response
        from common.error_forms import error_form_register

        error_form_register(PREFIX, assist_error_response, bodies_by_view=True)
