"""The part of the process `pages` that deploys: what a killed predecessor has left begins again at once."""

from __future__ import annotations


class DeployProcess:
    """Tasks carry deploys out (`pages.deploys.worker`); nothing is to be ended."""

    role = "pages"
    # Some libraries whose first import fails in the middle are of no use until the process ends.
    loads = ("common.responses", "vmbackend.guest.ssh", "domains.check")

    def begin(self) -> None:
        from pages.deploys.succession import settle_predecessor

        settle_predecessor()

    def end_soon(self) -> None:
        """Nothing: Celery waits for its tasks."""

    def end(self) -> None:
        """Nothing."""


PROCESS = DeployProcess()
