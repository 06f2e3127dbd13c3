"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from webhooks import direct, disabling, process, retention, subscriptions


@shared_task
def deliveries_send() -> None:
    """On the queue of `hooks`: something is due."""
    process.PROCESS.wake()


@shared_task
def deleted_subscriptions_remove() -> int:
    """Celery beat: remove what belongs to deleted webhooks."""
    return subscriptions.deleted_subscriptions_remove()


@shared_task
def switched_off_settle() -> int:
    """Celery beat: disable what is pending of webhooks that are off."""
    return disabling.switched_off_settle()


@shared_task
def unused_receivers_delete() -> int:
    """Celery beat: delete receivers that requests named, and that are not used any more."""
    return direct.unused_receivers_delete()


@shared_task
def old_events_remove() -> int:
    """Celery beat: remove what is older than 30 days."""
    return retention.old_events_remove()
