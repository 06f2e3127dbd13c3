"""Sessions of the admin: what the database holds of one does not let anybody in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import tasks
from accounts.session_times import ENDS
from accounts.sessions import SessionStore, stored_key
from tests.callers import Caller

pytestmark = pytest.mark.django_db
PAGE = "/admin/accounts/account/"


def with_cookie(key: str) -> Any:
    client = Client()
    client.cookies["sessionid"] = key
    return client.get(PAGE)


def test_the_key_of_a_session_is_nowhere_in_the_database(staff: Client) -> None:
    key = staff.cookies["sessionid"].value
    assert staff.get(PAGE).status_code == 200
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            assert key not in str(cursor.fetchall())


def test_a_secret_that_waits_to_be_shown_is_not_readable_in_the_database(staff: Client, api: Caller) -> None:
    """As it is made by the form, before the browser has followed to the page that shows it."""
    sent = {"account": api.account.pk, "name": "mine", "scope": "account"}
    made = staff.post("/admin/accounts/credential/add/", sent)
    assert made.status_code == 302
    data = Session.objects.get().session_data
    key = staff.cookies["sessionid"].value
    secret = str(SessionStore(key).load()["_messages"]).partition("secret ")[2].partition(";")[0]
    assert secret.startswith("sec_")
    with pytest.raises(signing.BadSignature):
        signing.loads(data, salt=SessionStore().key_salt, serializer=SessionStore().serializer)
    assert secret not in data
    assert secret in staff.get(made["Location"]).content.decode()


def test_data_that_was_not_encrypted_is_no_session(staff: Client) -> None:
    plain = db.SessionStore().encode(staff.session.load())
    Session.objects.update(session_data=plain)
    assert staff.get(PAGE).status_code == 302


def test_what_the_table_holds_is_no_key(staff: Client) -> None:
    stored = Session.objects.get().pk
    assert with_cookie(staff.cookies["sessionid"].value).status_code == 200
    assert with_cookie(stored).status_code == 302
    assert with_cookie(stored_key(stored)).status_code == 302


def test_a_session_ends_with_the_logout(staff: Client) -> None:
    key = staff.cookies["sessionid"].value
    staff.post("/admin/logout/")
    assert with_cookie(key).status_code == 302
    assert not Session.objects.exists()


def test_a_changed_session_stays_one_row(staff: Client) -> None:
    store = SessionStore(staff.cookies["sessionid"].value)
    store["note"] = 1
    store.save()
    assert SessionStore(store.session_key)["note"] == 1
    assert Session.objects.count() == 1
    former = store.session_key
    store.cycle_key()
    assert SessionStore(former).get("note") is None
    assert Session.objects.count() == 1


def test_expired_sessions_are_not_found_and_are_removed(staff: Client) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert staff.get(PAGE).status_code == 302
    tasks.forget_expired_sessions()
    assert not Session.objects.exists()


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Lets time pass, for Django's sessions, too."""
    real, gone = timezone.now, [timedelta(0)]
    monkeypatch.setattr(timezone, "now", lambda: real() + gone[0])

    def wait(time: timedelta) -> None:
        gone[0] += time

    return wait


def test_a_session_ends_after_its_longest_time_whatever_is_done(
    staff: Client, passed: Callable[[timedelta], None]
) -> None:
    """Requests, changes of it and a new key do not prolong it."""
    login = timezone.now()
    longest = timedelta(seconds=settings.ENV.admin_session_seconds)
    step = timedelta(hours=1)
    for _ in range(longest // step - 1):
        passed(step)
        assert staff.get(PAGE).status_code == 200
        session = staff.session
        session["note"] = str(timezone.now())
        session.save()
        session.cycle_key()
        session.save()
        staff.cookies["sessionid"] = str(session.session_key)
    assert Session.objects.get().expire_date <= login + longest + timedelta(seconds=5)
    passed(step)
    passed(timedelta(seconds=5))
    assert staff.get(PAGE).status_code == 302


def test_a_session_ends_where_no_request_comes(staff: Client, passed: Callable[[timedelta], None]) -> None:
    idle = timedelta(seconds=settings.ENV.admin_idle_seconds)
    for _ in range(3):
        passed(idle - timedelta(minutes=2))
        answer = staff.get(PAGE)
        assert answer.status_code == 200
        # The browser forgets it, too.
        assert abs(answer.cookies["sessionid"]["max-age"] - idle.total_seconds()) <= 2
    passed(idle + timedelta(seconds=5))
    assert staff.get(PAGE).status_code == 302


def test_a_request_soon_after_another_one_writes_nothing(staff: Client) -> None:
    staff.get(PAGE)
    with CaptureQueriesContext(connection) as seen:
        staff.get(PAGE)
    assert [query["sql"] for query in seen if "UPDATE" in query["sql"]] == []


def test_a_session_of_an_earlier_release_has_its_longest_time_from_now_on(staff: Client) -> None:
    session = staff.session
    del session[ENDS]
    session.set_expiry(timedelta(days=14))
    session.save()
    assert staff.get(PAGE).status_code == 200
    idle = timedelta(seconds=settings.ENV.admin_idle_seconds + 5)
    assert Session.objects.get().expire_date < timezone.now() + idle


def test_asynchronous_code_stores_hashes_too() -> None:
    async def work() -> str:
        store = SessionStore()
        await store.aset("note", 1)
        await store.asave()
        assert await SessionStore(store.session_key).aget("note") == 1
        return str(store.session_key)

    key = async_to_sync(work)()
    assert Session.objects.get().pk == stored_key(key)
