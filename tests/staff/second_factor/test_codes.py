"""Codes of an authenticator and recovery codes: each once, guesses, several at once, none in the database."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from staff.audit import StaffMember
from staff.models import Authenticator, RecoveryCode, StaffEntry
from staff.second_factor import services
from tests.staff.second_factor.codes import code_of, forget_last, secret_of, send

pytestmark = pytest.mark.django_db


def test_neither_secrets_nor_recovery_codes_are_in_the_database(user: User, recovery: list[str]) -> None:
    secret = secret_of(user)
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret FROM staff_authenticator")
        stored = str(cursor.fetchall())
    stored += str(list(RecoveryCode.objects.values())) + str(list(StaffEntry.objects.values()))
    key = base64.b32decode(secret)
    for plain in (secret, key.hex(), *recovery, *(code.replace("-", "") for code in recovery)):
        assert plain not in stored


def test_a_code_is_accepted_once(user: User, recovery: list[str]) -> None:
    code = code_of(secret_of(user))
    clients = [Client(), Client()]
    for one in clients:
        one.force_login(user)
    assert send(clients[0], code).status_code == 302
    refused = send(clients[1], code)
    assert refused.status_code == 403
    assert "has been used" in refused.content.decode()
    Authenticator.objects.update(throttling_failure_count=0)
    assert send(clients[1], code_of(secret_of(user), -1)).status_code == 403, "nor one before it"


def test_codes_of_a_clock_that_is_a_step_off_are_accepted_and_older_ones_not(
    client: Client, user: User, recovery: list[str]
) -> None:
    assert send(client, code_of(secret_of(user), -3)).status_code == 403
    forget_last(user)
    assert send(client, code_of(secret_of(user), -1)).status_code == 302


@pytest.mark.parametrize("code", ["", "12345", "1234567", "abcdef", "١٢٣٤٥٦", "-12345", "0" * 33])
def test_what_is_no_code_is_refused(client: Client, recovery: list[str], code: str) -> None:
    answer = send(client, code)
    assert answer.status_code in (200, 403)
    assert client.get("/admin/").status_code == 302


def test_guesses_wait_longer_and_longer_and_are_recorded(client: Client, user: User, recovery: list[str]) -> None:
    assert send(client, "000000").status_code == 403
    refused = send(client, code_of(secret_of(user)))
    assert refused.status_code == 429, "a right code, too soon: it was not looked at"
    assert 0 < int(refused["Retry-After"]) <= 1
    for failures in range(2, 14):
        Authenticator.objects.update(throttling_failure_timestamp=timezone.now() - timedelta(hours=1))
        assert send(client, "000000").status_code == 403
        assert Authenticator.objects.get().throttling_failure_count == min(failures, services.MOST_FAILURES)
    assert int(send(client, "000000")["Retry-After"]) > 500
    assert StaffEntry.objects.filter(action="second_factor.checked", outcome="refused").count() == 13
    Authenticator.objects.update(throttling_failure_timestamp=timezone.now() - timedelta(hours=1))
    assert send(client, code_of(secret_of(user))).status_code == 302
    assert Authenticator.objects.get().throttling_failure_count == 0


@pytest.mark.django_db(transaction=True)
def test_of_many_guesses_at_once_one_is_looked_at(user: User, recovery: list[str]) -> None:
    member = StaffMember(user.pk, user.username)

    def guess(_: int) -> str:
        try:
            services.code_check(member, "000000")
        except Exception as exc:
            return type(exc).__name__
        finally:
            connections.close_all()
        return "accepted"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(guess, range(8)))
    assert sorted(found) == ["RateLimited"] * 7 + ["WrongCode"]


@pytest.mark.django_db(transaction=True)
def test_a_code_that_is_sent_twice_at_once_is_accepted_once(user: User, recovery: list[str]) -> None:
    member, code = StaffMember(user.pk, user.username), code_of(secret_of(user))

    def check(sent: str) -> bool:
        try:
            services.code_check(member, sent)
        except Exception:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(check, [code] * 4)) == 1
        forget_last(user)
        assert sum(pool.map(check, [recovery[0]] * 4)) == 1


def test_a_recovery_code_is_accepted_once_however_it_is_written(
    client: Client, user: User, recovery: list[str]
) -> None:
    assert send(client, recovery[0].upper().replace("-", " ")).status_code == 302
    assert client.get("/admin/").status_code == 200
    other = Client()
    other.force_login(user)
    assert send(other, recovery[0]).status_code == 403
    assert RecoveryCode.objects.count() == services.RECOVERY_CODES - 1
    assert StaffEntry.objects.get(action="second_factor.recovery_code").detail == "9 codes are left."


def test_a_recovery_code_of_another_is_refused(client: Client, user: User, recovery: list[str]) -> None:
    other = get_user_model().objects.create_superuser("dave")
    RecoveryCode.objects.update(user=other)
    assert send(client, recovery[0]).status_code == 403
    assert RecoveryCode.objects.count() == services.RECOVERY_CODES
