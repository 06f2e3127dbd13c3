"""The form of a confirmation page."""

from __future__ import annotations

from typing import Any

from django import forms

from staff.parts.reasons import reason_field


class ActionForm(forms.Form):
    """The reason, and the id of the page. Actions that need more have a subclass; its fields are `Act.data`."""

    reason = reason_field()
    submission = forms.RegexField(r"^[0-9a-f]{32}$", widget=forms.HiddenInput)

    def __init__(self, *args: Any, harms: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = harms

    @property
    def own_data(self) -> dict[str, Any]:
        """Return the values of what a subclass has added."""
        return {name: value for name, value in self.cleaned_data.items() if name not in ActionForm.base_fields}
