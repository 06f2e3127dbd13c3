from django.apps import AppConfig


class StaffConfig(AppConfig):
    name = "staff"
    verbose_name = "Staff"

    def ready(self) -> None:
        from common.admin import row_written
        from staff.form_entries import record_form

        row_written.register(record_form)
