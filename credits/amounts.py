"""Amounts of credits: Decimals in Python, whole numbers of 1e-8 credits in the database, JSON numbers outside.

Whole numbers of 64 bits are added and compared exactly, and take half the room of the database's decimal ones.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.expressions import Combinable

PLACES = Decimal("0.00000001")
SCALE = 10**8
MAX_CREDITS = Decimal(2**63 - 1) / SCALE
# Exponents of the smallest and the largest amount.
_PLACES, _DIGITS = 8, MAX_CREDITS.adjusted()


def stored_amount(credits: Decimal | int) -> int:
    """Return an amount as a column holds it; exact.

    Raise ValueError if it is not a number, has more than 8 places, or does not fit into 64 bits.
    """
    amount = Decimal(credits)
    if not amount:
        return 0
    # The size is checked first: as a ratio, a number with a huge exponent has millions of digits.
    if amount.is_finite() and -_PLACES <= amount.adjusted() <= _DIGITS:
        numerator, denominator = amount.as_integer_ratio()
        scaled, rest = divmod(numerator * SCALE, denominator)
        if not rest and abs(scaled) < 2**63:
            return scaled
    raise ValueError(f"{credits} is not an amount of credits")


def amount_of_stored(stored: int) -> Decimal:
    """Return the amount that a column's value stands for; exact. The opposite of `stored_amount`."""
    return Decimal(stored) / SCALE


def as_number(credits: Decimal) -> float:
    """Return an amount as JSON shows it: below 2^26 (67 million) credits all 8 places, above it 15 digits or more."""
    return float(credits)


class CreditsField(models.BigIntegerField):  # type: ignore[type-arg]  # Django has none at run time
    """Column for an amount of credits, which is a Decimal in Python. Sums and comparisons of the database are exact."""

    if TYPE_CHECKING:  # what the stubs take its values for
        _pyi_private_set_type: Decimal | Combinable  # type: ignore[assignment]
        _pyi_private_get_type: Decimal  # type: ignore[assignment]

    def from_db_value(self, value: int | None, *_: Any) -> Decimal | None:
        return None if value is None else amount_of_stored(value)

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else stored_amount(self.to_python(value))

    def to_python(self, value: Any) -> Any:
        return value if value is None or isinstance(value, Decimal) else Decimal(str(value))

    @property
    def validators(self) -> list[Any]:
        """Return the validators of the Decimal. The column's own range is that of `stored_amount`."""
        return [
            *self._validators,  # type: ignore[attr-defined]  # not in the stubs
            MinValueValidator(-MAX_CREDITS),
            MaxValueValidator(MAX_CREDITS),
        ]

    def formfield(self, **kwargs: Any) -> forms.Field | None:
        return models.Field.formfield(self, form_class=forms.DecimalField, max_digits=18, decimal_places=8, **kwargs)
