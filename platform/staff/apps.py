from django.apps import AppConfig
from django.conf import settings


class StaffConfig(AppConfig):
    name = "staff"
    verbose_name = "Staff"

    def ready(self) -> None:
        if not settings.SHOWS_ADMIN:
            return
        from staff.form_entries import record_form
        from staff.parts.bases import row_written

        row_written.register(record_form)
