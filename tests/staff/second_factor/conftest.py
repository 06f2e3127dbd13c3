"""A superuser, the own client, and a second factor with its recovery codes."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.test import Client

from staff.audit import StaffMember
from staff.second_factor import services
from tests.staff.second_factor.codes import code_of, forget_last


@pytest.fixture
def user() -> User:
    return get_user_model().objects.create_superuser("carol")


@pytest.fixture
def client(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Any:
    def change(value: str) -> None:
        monkeypatch.setattr(settings.ENV, "admin_second_factor", value)

    return change


@pytest.fixture
def recovery(user: User) -> list[str]:
    """The user has a second factor, and these recovery codes."""
    member = StaffMember(user.pk, user.username)
    begun = services.factor_begin(user.pk)
    made = services.factor_confirm(member, code_of(begun.secret), begun.pk)
    forget_last(user)
    return made
