"""The form of a confirmation page."""

from __future__ import annotations

import unicodedata
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextInputWidget

REASON_LENGTH = 300


def require_plain_text(text: str) -> None:
    """Raises ValidationError for control characters, line breaks and what makes text run backwards."""
    if any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in text):
        raise forms.ValidationError("The reason is one line of text, without control characters.", code="invalid")


class ActionForm(forms.Form):
    """The reason, and the id of the page. Actions that need more have a subclass; its fields are `Act.data`."""

    reason = forms.CharField(
        max_length=REASON_LENGTH,
        validators=[require_plain_text],
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="The owner reads it in the activity. At most 300 characters.",
    )
    submission = forms.RegexField(r"^[0-9a-f]{32}$", widget=forms.HiddenInput)

    def __init__(self, *args: Any, harms: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = harms

    @property
    def own_data(self) -> dict[str, Any]:
        """The values of what a subclass has added."""
        return {name: value for name, value in self.cleaned_data.items() if name not in ActionForm.base_fields}
