"""Rows of hosts that joined, tokens of staff, and an instance that was opened to other machines."""

from __future__ import annotations

import shutil
from itertools import count

from django.conf import settings
from django.contrib.auth.models import User

from common.private_network import ADDRESS, network_folder
from common.redis import redis_client, redis_key
from hosts import views
from staff.api_tokens import token_create
from supervise.network_certificates import make_certificates
from vmbackend.models import Host
from vmbackend.services import host_create

CONTROL_ADDRESS = "192.0.2.1"
_numbers = count(1)


def open_network() -> None:
    """Make the instance of the tests one that was opened; nothing listens."""
    folder = network_folder(settings.STATE)
    folder.mkdir(exist_ok=True)
    make_certificates(folder, CONTROL_ADDRESS)
    (folder / ADDRESS).write_text(CONTROL_ADDRESS)


def close_network() -> None:
    """Make the instance of the tests one that was not opened."""
    shutil.rmtree(network_folder(settings.STATE), ignore_errors=True)


def forget_wrong_tokens() -> None:
    """Let joins be tried again at once, as if no wrong token had been sent."""
    redis_client().delete(redis_key("throttle:join:source:everywhere"))
    views._wrong_tokens.cache_clear()


def joined_host(name: str = "") -> Host:
    number = next(_numbers)
    return host_create(
        name=name or f"joined-{number}", machine_id=f"{number:016x}", subnet=f"10.{128 + number % 100}.240.0/20",
        address=f"192.0.2.{100 + number % 100}", arch="amd64",
    )  # fmt: skip


def staff_user(name: str = "ada") -> User:
    return User.objects.filter(username=name).first() or User.objects.create_superuser(name)


def staff_token(*can: str) -> str:
    """A token of a superuser."""
    return token_create(user=staff_user(), can=can or ("hosts.read", "hosts.act"), ttl_seconds=3600).text
