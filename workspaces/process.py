"""The process vmhost: the host's driver is open from its start to its end."""

from __future__ import annotations

import logging

from celery import current_app

from common.work.processes import ending_in_order

logger = logging.getLogger(__name__)


class HostProcess:
    """Part of vmhost that owns the machines. It imports the code of the host only when it begins, as no other worker
    may load that code.
    """

    role = "vmhost"
    loads: tuple[str, ...] = ()

    def begin(self) -> None:
        """Open the host. Raise SystemExit if the hypervisor is not available, or if the host's name is held: the
        supervisor tries again.
        """
        from vmbackend.errors import BackendError
        from workspaces.host import process

        try:
            # Otherwise machines that are to be stopped with their host would run on.
            with ending_in_order(self.end):
                runtime = process.open_host()
        except BackendError as exc:
            logger.error("vmhost cannot start: %s", exc)
            raise SystemExit(1) from exc
        queues = current_app.amqp.queues
        queues.select_add(queues[runtime.queue_name])

    def end_soon(self) -> None:
        """Do nothing: Celery waits for its tasks."""

    def end(self) -> None:
        from workspaces.host import process

        process.close_host()


PROCESS = HostProcess()
