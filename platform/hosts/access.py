from __future__ import annotations


def create_host_role(host_id: str) -> str:
    raise NotImplementedError


def drop_host_role(host_id: str) -> None:
    raise NotImplementedError


def create_redis_user(host_id: str) -> str:
    raise NotImplementedError


def drop_redis_user(host_id: str) -> None:
    raise NotImplementedError


def hosts_with_credentials() -> set[str]:
    raise NotImplementedError
