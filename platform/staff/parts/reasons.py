"""Reasons of staff: a line of text that audit entries have and owners may read."""

from __future__ import annotations

import unicodedata

from django import forms
from unfold.widgets import UnfoldAdminTextInputWidget

REASON_LENGTH = 300
READ_BY_OWNERS = "The owner can read it in the activity. At most 300 characters."


def require_plain_text(text: str) -> None:
    """Raise ValidationError for control characters, line breaks and what makes text run backwards."""
    if any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in text):
        raise forms.ValidationError("The reason is one line of text, without control characters.", code="invalid")


def reason_field(help_text: str = READ_BY_OWNERS) -> forms.CharField:
    """Return the field of a form for the reason."""
    return forms.CharField(
        max_length=REASON_LENGTH,
        validators=[require_plain_text],
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text=help_text,
    )
