"""What a trial of `make images` makes of what it sees, without a machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from tests.images.recipe import Probe, Recipe
from tests.images.trial import run_trial, start_gap
from tests.vm.client import Api
from tests.vm.instances import TestInstance

RUNSV = "runsvmain|40 (runsv) S 30 40 40" + " 0" * 15 + " 200 0"
LOG = "/run/kit/bin/guestlog|41 (log) S 40 41 41" + " 0" * 15 + " 201 0"
PROGRAM = "serve(x) y|{pid} (my (odd) name) S 40 9 9" + " 0" * 15 + " {start} 0"


def test_a_program_that_was_started_again_is_seen() -> None:
    others = ["|2 (kthreadd) S 0 0 0" + " 0" * 15 + " 1 0", "gone|", RUNSV, LOG]
    assert start_gap("\n".join([*others, PROGRAM.format(pid=50, start=260)])) == pytest.approx(0.59)
    assert start_gap("\n".join([*others, PROGRAM.format(pid=90, start=901)])) == pytest.approx(7.0)


def test_a_program_that_does_not_run_is_seen() -> None:
    finishing = "/run/kit/bin/guestfinish./finish1" + PROGRAM.format(pid=60, start=300).partition("y")[2]
    assert start_gap(f"{RUNSV}\n{LOG}") is None
    assert start_gap(f"{RUNSV}\n{LOG}\n{finishing}") is None
    assert start_gap("") is None


def test_an_api_that_breaks_off_is_a_fault_of_one_image(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout(f"no answer to {request.method}")

    api = Api("http://platform.invalid", "id", "secret")
    api.http = httpx.Client(base_url="http://platform.invalid", transport=httpx.MockTransport(refuse))
    instance: Any = SimpleNamespace(settings=SimpleNamespace(machines_dir=tmp_path))
    result = run_trial(cast(TestInstance, instance), api, Recipe("any", Probe(1, b"", b"x"), {}), "any")
    assert result.faults == ["ReadTimeout: no answer to POST"]
