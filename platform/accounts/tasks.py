"""Periodic tasks of accounts."""

from celery import shared_task

from accounts import audit, services
from accounts.sessions import SessionStore


@shared_task
def forget_idempotency_keys() -> int:
    return services.idempotency_keys_expire()


@shared_task
def forget_expired_sessions() -> None:
    SessionStore.clear_expired()


@shared_task
def prune_audit_logs() -> int:
    return audit.prune_audit()
