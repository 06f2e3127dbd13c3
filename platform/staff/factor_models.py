"""The second factor of a user. Written by `staff.second_factor.services` only.

django-otp's own models have the secret of an authenticator app and recovery codes in plain text; here the one is
encrypted, and of the others there are hashes.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django_otp.models import Device, ThrottlingMixin

from common.secrets_at_rest import EncryptedJSONField


class Authenticator(ThrottlingMixin, Device):  # type: ignore[misc]  # its package has no types
    """The authenticator app of a user. `confirmed` once a code of it was right; before that it is no second factor.

    `secret`: 160 bits as base32, encrypted. `last_step`: the time step of the newest code that was accepted; none of
    that step or an earlier one is accepted again. The throttle's columns count wrong codes since a right one.
    """

    secret = EncryptedJSONField()
    last_step = models.BigIntegerField(default=-1)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user"], name="one_authenticator_of_a_user")]

    def get_throttle_factor(self) -> float:
        """Return seconds to wait after the first wrong code; twice as many after each further one."""
        return 1.0


class RecoveryCode(models.Model):
    """A code that is accepted once in place of the authenticator's; the row is deleted with its use."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    code_hash = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return f"a recovery code of {self.user_id}"
