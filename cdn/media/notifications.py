"""Tasks for the worker `media`: a file whose bytes have arrived, and bytes and links that are to be removed."""

from __future__ import annotations

from common.work.wakeups import task_send

QUEUE = "media"
PROCESS_TASK = "cdn.tasks.process_next"
REMOVE_TASK = "cdn.tasks.remove_stored"
WITHDRAW_TASK = "cdn.tasks.withdraw_links"
# The task is sent again after so many seconds, while no process has begun with it.
WITHDRAWAL_EXPIRES_SECONDS = 10


def notify_worker(file_id: str) -> None:
    """Send one task for each file. Which file it processes is decided when it runs, so that accounts take turns."""
    task_send(PROCESS_TASK, QUEUE)


def request_removal(file_ids: list[str]) -> None:
    """Have the stored bytes of these files removed."""
    task_send(REMOVE_TASK, QUEUE, [file_ids])


def request_withdrawal(account_id: str) -> None:
    """Have the other links of an inactive account's files removed."""
    task_send(WITHDRAW_TASK, QUEUE, [account_id], expires=WITHDRAWAL_EXPIRES_SECONDS)
