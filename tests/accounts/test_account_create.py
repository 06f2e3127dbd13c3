"""`manage.py account_create` and the plans an installation begins with."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import Account, Plan

pytestmark = pytest.mark.django_db


def test_an_account_is_made_with_its_namespace_and_a_credential_that_works() -> None:
    out = StringIO()
    call_command("account_create", "acme", "--plan", "pro", "--json", stdout=out)
    shown = json.loads(out.getvalue())
    assert set(shown) >= {"client_id", "client_secret"}
    account = Account.objects.get(name="acme")
    assert account.plan_id == "pro"
    assert account.namespaces.get().slug == "default"
    pair = {"X-Client-ID": shown["client_id"], "X-Client-Secret": shown["client_secret"]}
    assert Client().get("/workspace/quota", headers=pair).json()["plan"] == "pro"


def test_the_plain_output_is_for_people() -> None:
    out = StringIO()
    call_command("account_create", "acme", stdout=out)
    assert "client_secret: sec_" in out.getvalue()


def test_an_unknown_plan_is_refused_with_the_known_ones_and_leaves_nothing() -> None:
    with pytest.raises(CommandError, match=r"no plan 'gold'.*free.*pro"):
        call_command("account_create", "acme", "--plan", "gold", stdout=StringIO())
    assert not Account.objects.exists()


def test_the_first_plans() -> None:
    assert set(Plan.objects.values_list("code", flat=True)) >= {"free", "pro"}
    for plan in Plan.objects.all():
        assert plan.cpus <= plan.pool_cpus
        assert plan.memory_mb <= plan.pool_memory_mb
        assert plan.disk_size_mb <= plan.pool_disk_size_mb
