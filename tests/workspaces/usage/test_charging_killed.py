"""A pass of charging whose process is killed after each of its statements: nothing is lost, nothing counts twice."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command

from credits import ledger
from credits.models import Balance, Entry, Service, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.killed_process import killed_process
from tests.workspaces.usage.test_charging import HOUR_NS, metered, records, used
from workspaces.charging import services as charging
from workspaces.models import CycleUsage, NamespaceHour, WorkspaceHour

pytestmark = pytest.mark.django_db(transaction=True)

PASS = "workspaces.charging.services.charge_metered"


def agree() -> bool:
    out = StringIO()
    call_command("ledger_check", stdout=out)
    return "agrees" in out.getvalue()


@pytest.mark.campaign
def test_a_pass_that_is_killed_anywhere_has_charged_whole_batches(api: Caller) -> None:
    default = Namespace.objects.get(account=api.account)
    ledger.quota_set(
        namespace=default, service=Service.SANDBOX, limit=Decimal(5), overdraft=Decimal(0), action="block",
        thresholds=[50, 100],
    )  # fmt: skip
    for workspace in ("ws_1", "ws_2"):
        records(metered(default, workspace), 4, cpu_time_ns=HOUR_NS)
    statement, kills = 0, Counter[int]()
    with killed_process() as process:
        while process.killed_at(statement := statement + 1, PASS, BATCH=5):
            charged = sum(NamespaceHour.objects.values_list("records", flat=True))
            if charged and charged not in kills:
                statement = 0  # a batch was committed: the next one from its first statement on
            kills[charged] += 1
            assert charged in (0, 5)
            assert agree()
    assert kills[0] > 15 < kills[5]
    assert used(default) == 8
    assert charging.charge_metered() == 0
    for model in (Entry, Spending):
        field = "amount" if model is Entry else "credits"
        assert sum(model._default_manager.values_list(field, flat=True)) == 8
    for sums in (WorkspaceHour, CycleUsage):
        assert sum(sums.objects.values_list("credits", flat=True)) == 8
    assert Balance.objects.get().last_threshold_fired == 100
