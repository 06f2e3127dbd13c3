from __future__ import annotations


def create_redis_user(host_id: str) -> str:
    raise NotImplementedError


def drop_redis_user(host_id: str) -> None:
    raise NotImplementedError
