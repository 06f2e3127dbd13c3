"""What `manage.py doctor` says of custom domains."""

from __future__ import annotations

from typing import Any

import pytest

from domains.doctor import doctor_lines
from tests.domains.zone import EDGE, EDGE_ADDRESS, Zone

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("host", ["", "127.0.0.1", "2001:db8::1", "localhost", "a.localhost", "edge"])
def test_a_host_that_no_domain_can_lead_to_is_found_where_domains_are_used(zone: Zone, env: Any, host: str) -> None:
    env(edge_host=host)
    ((_, found, message, _),) = doctor_lines()
    assert (found, message[:4]) == (True, "off:")
    env(domains_http_port=80)
    ((_, found, message, fix),) = doctor_lines()
    assert not found
    assert "PLATFORM_EDGE_HOST" in message
    assert "PLATFORM_EDGE_HOST" in fix


def test_a_host_without_an_address_is_found(zone: Zone, env: Any) -> None:
    env(edge_addresses=(), domains_http_port=80)
    ((_, found, message, _),) = doctor_lines()
    assert (found, message) == (False, f"{EDGE} (PLATFORM_EDGE_HOST) has no address")
    zone.set(EDGE, A=EDGE_ADDRESS)
    ((_, found, message, _),) = doctor_lines()
    assert (found, message) == (True, f"are a CNAME of {EDGE}")
