"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from webhooks import direct, disabling, process, retention, schedule, subscriptions


@shared_task
def send_deliveries() -> None:
    """Tell the process `hooks` that something is due."""
    process.PROCESS.wake()


@shared_task
def end_too_long_waits() -> int:
    """Celery beat: deliveries whose times were written before the clock was set back."""
    return schedule.end_too_long_waits()


@shared_task
def deleted_subscriptions_remove() -> int:
    """Celery beat: remove what belongs to deleted webhooks."""
    return subscriptions.deleted_subscriptions_remove()


@shared_task
def settle_switched_off() -> int:
    """Celery beat: disable what is pending of webhooks that are off."""
    return disabling.settle_switched_off()


@shared_task
def delete_unused_receivers() -> int:
    """Celery beat: delete receivers that requests named, and that are not used any more."""
    return direct.delete_unused_receivers()


@shared_task
def remove_old_events() -> int:
    """Celery beat: remove what is older than 30 days."""
    return retention.remove_old_events()
