"""Credentials of a machine that joins: its own way into the database and Redis, and what it is to know."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from django.conf import settings

from common.host_access.redis_users import create_redis_user, drop_redis_user
from common.host_access.roles import create_host_role, drop_host_role
from common.private_network import AUTHORITY, network_folder, stored_address
from vmbackend.backend import control_key

# In URLs: the machine puts the path of the file there in which it stores the authority's certificate.
CA_PATH = "CA_PATH"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`database` and `redis` are URLs with CA_PATH in them, `ca` is the authority's certificate (PEM). `host_key`: the
    public key with which the control plane enters guests. `data_key`: by which the columns are encrypted that hosts
    read.
    """

    database: str
    redis: str
    ca: str
    host_key: str
    data_key: str


def make_credentials(host_id: str) -> Credentials:
    """Return credentials of the host; those that it had before are none any more."""
    return Credentials(
        database=_database_url(host_id, create_host_role(host_id)),
        redis=_redis_url(host_id, create_redis_user(host_id)),
        ca=(network_folder(settings.STATE) / AUTHORITY).read_text(),
        host_key=control_key().with_suffix(".pub").read_text().strip(),
        data_key=settings.DATA_KEY,
    )


def drop_credentials(host_id: str) -> None:
    """End the host's sessions and let it in no more. Idempotent.

    Raise RedisError if its user in Redis stays, which `remove_former_credentials` ends then.
    """
    drop_host_role(host_id)
    drop_redis_user(host_id)


def _database_url(user: str, password: str) -> str:
    """Return the URL of the instance's own server at the private address, or that of the operator's for this user."""
    name = settings.DATABASES["default"]["NAME"]
    if settings.ENV.has_own_server:
        place = f"{stored_address(settings.STATE)}:5432/{name}?sslmode=verify-full&sslrootcert={CA_PATH}"
    else:
        parts = urlsplit(settings.ENV.database_url)
        place = f"{parts.netloc.rpartition('@')[2]}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    return f"postgresql://{user}:{quote(password, safe='')}@{place}"


def _redis_url(user: str, password: str) -> str:
    parts = urlsplit(settings.REDIS_URL)
    if parts.scheme == "unix":
        place = f"{stored_address(settings.STATE)}:{settings.ENV.private_port + 1}"
        return f"rediss://{user}:{password}@{place}/0?ssl_cert_reqs=required&ssl_ca_certs={CA_PATH}"
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()
