"""The process vmhost: the host's driver is open from its start to its end."""

from __future__ import annotations

import logging

from common.work.processes import ending_in_order

logger = logging.getLogger(__name__)


class HostProcess:
    """The part of vmhost that owns the machines. It imports what it needs of the host when it begins, as no other
    worker may load that.
    """

    role = "vmhost"
    loads: tuple[str, ...] = ()

    def begin(self) -> None:
        """Raises SystemExit where the hypervisor is not available, or the name held: the supervisor tries again."""
        from vmbackend.errors import BackendError
        from workspaces.host import process

        try:
            # Else machines that are to be stopped with their host would run on.
            with ending_in_order(self.end):
                process.open_host()
        except BackendError as exc:
            logger.error("vmhost cannot start: %s", exc)
            raise SystemExit(1) from exc

    def end_soon(self) -> None:
        """Nothing: Celery waits for its tasks."""

    def end(self) -> None:
        from workspaces.host import process

        process.close_host()


PROCESS = HostProcess()
