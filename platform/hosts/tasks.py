"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from hosts import services, tokens


@shared_task
def remove_leaving_hosts() -> int:
    """Celery beat: hosts whose machines ask to leave."""
    return services.remove_leaving_hosts()


@shared_task
def remove_former_credentials() -> int:
    """Celery beat: credentials of hosts that are gone."""
    return services.remove_former_credentials()


@shared_task
def remove_expired_tokens() -> int:
    """Celery beat: tokens of joins that nobody can use any more."""
    return tokens.remove_expired_tokens()
