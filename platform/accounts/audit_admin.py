"""Staff: the audit logs of what belongs to accounts."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.admin import AdminSite

from accounts.audit import AccountEvent
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import id_column, text_column, time_column
from staff.parts.lists import AgeFilter, IdFilter


class AccountEventAdmin(ReadOnlyAdmin):
    """The list of one log. `subject_model`: of what its entries are about, as `pages.Page`, if that is one model."""

    subject_model: ClassVar[str] = ""
    search_fields = ("=actor", "=action")
    search_help_text = "Id of the object of the entry, or of its account; action, actor"
    keyset = ("-id",)

    def __init__(self, model: type[AccountEvent], admin_site: AdminSite) -> None:
        subject = model.subject_field
        self.list_display = (
            time_column("created_at", "When"),
            id_column(subject, self.subject_model) if self.subject_model else subject,
            "action", text_column("actor"), "ip_address", text_column("detail", length=80),
        )  # fmt: skip
        self.list_filter = (
            ("action", IdFilter), (subject, IdFilter), ("account", IdFilter), ("created_at", AgeFilter),
        )  # fmt: skip
        self.search_ids = (subject, "account__id")
        super().__init__(model, admin_site)
