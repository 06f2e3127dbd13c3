"""Periodic tasks of accounts."""

from celery import shared_task

from accounts import services


@shared_task
def forget_idempotency_keys() -> int:
    return services.idempotency_keys_expire()
