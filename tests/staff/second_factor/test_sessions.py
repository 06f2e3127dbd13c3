"""What a session may before and after the second factor, who sets one up, and who resets one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from staff.models import Authenticator, RecoveryCode, StaffEntry
from staff.second_factor import services
from tests.staff.pages import confirm, shown
from tests.staff.second_factor.codes import SETUP, VERIFY, code_of, forget_last, secret_of, send

pytestmark = pytest.mark.django_db


def test_a_second_factor_is_set_up_with_a_code_and_gives_recovery_codes_once(client: Client, user: User) -> None:
    page = client.get(SETUP).content.decode()
    secret = secret_of(user)
    assert secret in page
    assert "<svg" in page
    assert client.get("/admin/").status_code == 200, "it counts from its confirmation on"
    done = client.post(SETUP, {"code": code_of(secret)}).content.decode()
    codes = re.findall(r"<li>([a-z2-7-]{19})</li>", done)
    assert len(codes) == services.RECOVERY_CODES
    assert client.get("/admin/").status_code == 200
    again = client.get(SETUP).content.decode()
    assert secret not in again
    assert not [code for code in codes if code in again]
    assert StaffEntry.objects.filter(action="second_factor.set_up").count() == 1


def test_the_password_alone_opens_nothing_then(client: Client, user: User, recovery: list[str]) -> None:
    for path in ("/admin/", "/admin/accounts/account/", SETUP, "/admin/password_change/"):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, VERIFY), path
    assert client.post("/admin/accounts/plan/add/", {"code": "x"})["Location"] == VERIFY
    assert client.get(VERIFY).status_code == 200
    before = client.session.session_key
    answer = send(client, code_of(secret_of(user)), next="/admin/accounts/account/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/accounts/account/")
    assert client.get("/admin/accounts/account/").status_code == 200
    assert client.session.session_key != before


def test_a_session_that_is_not_verified_can_log_out(client: Client, recovery: list[str]) -> None:
    assert client.post("/admin/logout/").status_code == 200
    assert client.get("/admin/")["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/s/x", "javascript:alert(1)"])
def test_it_leads_to_pages_of_the_admin_only(client: Client, user: User, recovery: list[str], target: str) -> None:
    assert send(client, code_of(secret_of(user)), next=target)["Location"] == "/admin/"


def test_recovery_codes_are_replaced_and_the_factor_removed_with_a_code(
    client: Client, user: User, recovery: list[str]
) -> None:
    send(client, code_of(secret_of(user)))
    assert client.post(SETUP, {"code": "000000", "what": "remove"}).status_code == 403
    forget_last(user)
    renewed = client.post(SETUP, {"code": code_of(secret_of(user)), "what": "renew"}).content.decode()
    assert len(re.findall(r"<li>([a-z2-7-]{19})</li>", renewed)) == services.RECOVERY_CODES
    assert recovery[0] not in renewed
    forget_last(user)
    assert client.post(SETUP, {"code": recovery[0], "what": "remove"}).status_code == 403
    forget_last(user)
    assert client.post(SETUP, {"code": code_of(secret_of(user)), "what": "remove"}).status_code == 302
    assert not Authenticator.objects.exists()
    assert not RecoveryCode.objects.exists()
    assert client.get("/admin/").status_code == 200


def test_required_it_comes_before_everything(client: Client, user: User, mode: Any) -> None:
    mode("required")
    answer = client.get("/admin/accounts/account/")
    assert answer["Location"].partition("?")[0] == SETUP
    client.get(SETUP)
    client.post(SETUP, {"code": code_of(secret_of(user))})
    assert client.get("/admin/accounts/account/").status_code == 200


def test_switched_off_no_user_is_asked(client: Client, recovery: list[str], mode: Any) -> None:
    mode("off")
    assert client.get("/admin/").status_code == 200
    assert client.get(SETUP).status_code == 404
    assert client.get(VERIFY).status_code == 404


def test_others_are_sent_to_the_login() -> None:
    for path in (VERIFY, SETUP):
        assert Client().get(path)["Location"].startswith("/admin/login/")
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.post(SETUP, {"code": "000000"}).status_code == 403


def administrator() -> Client:
    user = get_user_model().objects.create_user("admin", is_staff=True)
    group = Group.objects.create(name="who resets")
    group.permissions.set(Permission.objects.filter(codename__in=["view_user", "reset_second_factor"]))
    user.groups.add(group)
    client = Client()
    client.force_login(user)
    return client


def test_an_administrator_resets_a_lost_one_and_it_is_recorded(client: Client, user: User, recovery: list[str]) -> None:
    send(client, code_of(secret_of(user)))
    User.objects.filter(pk=user.pk).update(is_superuser=False)
    answer = confirm(administrator(), "auth/user", "reset_factor", user.pk, reason="Lost, called back.")
    assert shown(answer) == ["Reset the second factor: 1 done."]
    assert not Authenticator.objects.exists()
    entry = StaffEntry.objects.get(action="user.reset_factor")
    assert (entry.user_name, entry.object_label, entry.reason) == ("admin", "carol", "Lost, called back.")


def test_of_a_superuser_only_another_one_resets_it(user: User, recovery: list[str]) -> None:
    answer = confirm(administrator(), "auth/user", "reset_factor", user.pk, reason="why")
    assert "by a superuser" in shown(answer)[0]
    assert Authenticator.objects.exists()
    assert StaffEntry.objects.filter(outcome="refused", action="user.reset_factor").exists()


def test_who_has_the_host_resets_it(user: User, recovery: list[str]) -> None:
    out = StringIO()
    call_command("second_factor_reset", "carol", "--reason", "lost", stdout=out)
    assert "carol" in out.getvalue()
    assert not Authenticator.objects.exists()
    assert StaffEntry.objects.get(action="user.reset_factor").user_name == "command line"
    for name in ("carol", "nobody"):
        with pytest.raises(CommandError):
            call_command("second_factor_reset", name)


def test_nobody_resets_the_own_one_without_a_code(client: Client, user: User, recovery: list[str]) -> None:
    send(client, code_of(secret_of(user)))
    answer = confirm(client, "auth/user", "reset_factor", user.pk, reason="I have it, but no code.")
    assert "with a code" in shown(answer)[0]
    assert Authenticator.objects.filter(user=user, confirmed=True).exists()


def test_a_key_that_another_session_has_seen_becomes_no_second_factor(client: Client, user: User) -> None:
    """Who has the password and opens the page first knows its key; the user gets another one."""
    thief = Client()
    thief.force_login(user)
    thief.get(SETUP)
    seen = secret_of(user)
    assert seen not in client.get(SETUP).content.decode()
    own = secret_of(user)
    late = thief.post(SETUP, {"code": code_of(seen)})
    assert "was begun again since" in late.content.decode()
    assert secret_of(user) not in (seen, own)
    refused = client.post(SETUP, {"code": code_of(own)}).content.decode()
    assert secret_of(user) in refused
    assert "was begun again since" in refused
    assert not Authenticator.objects.filter(confirmed=True).exists()
    assert "Recovery codes" in client.post(SETUP, {"code": code_of(secret_of(user))}).content.decode()
    assert thief.get("/admin/")["Location"].startswith(VERIFY)


def test_a_page_that_is_loaded_again_shows_the_same_key(client: Client, user: User) -> None:
    client.get(SETUP)
    secret = secret_of(user)
    assert secret in client.get(SETUP).content.decode()
    assert secret in client.post(SETUP, {"code": "000000x"}).content.decode()


def _addresses(patterns: Any, prefix: str) -> Iterator[str]:
    """Every address of the admin, with something for each of its parameters."""
    for each in patterns:
        route = str(each.pattern)
        if hasattr(each, "url_patterns"):
            yield from _addresses(each.url_patterns, prefix + route)
        elif not route.startswith(("(?P", "^")):
            yield prefix + re.sub(r"<[^>]+>", "1", route)


def test_no_address_of_the_admin_is_open_before_the_code(client: Client, recovery: list[str]) -> None:
    found = {*_addresses(admin.site.urls[0], "/admin/"), "/admin/anything", "/admin"}
    assert len(found) > 250
    for path in found - {"/admin/logout/"}:
        answers = [client.get(path), client.post(path)]
        assert {(one.status_code, one["Location"].partition("?")[0]) for one in answers} == {(302, VERIFY)}, path


@pytest.mark.parametrize("path", [VERIFY, SETUP, "/admin/workspaces/workspace/ws_1/live/", "/admin/logout/"])
def test_a_post_without_the_csrf_token_is_refused(user: User, path: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.post(path, {"code": "000000"}).status_code == 403
