from django.apps import AppConfig
from django.conf import settings


class StaffConfig(AppConfig):
    name = "staff"
    verbose_name = "Staff"

    def ready(self) -> None:
        if not settings.SHOWS_ADMIN:
            return
        from common.admin import row_written
        from staff.form_entries import record_form

        row_written.register(record_form)
