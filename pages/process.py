"""Part of the process `pages` that deploys: deploys of a killed predecessor begin again at once."""

from __future__ import annotations


class DeployProcess:
    """Process that carries deploys out by tasks (`pages.deploys.worker`); it has nothing to end."""

    role = "pages"
    # Some libraries are unusable until the process ends if their first import fails in the middle.
    loads = ("common.responses", "vmbackend.guest.ssh", "domains.check")

    def begin(self) -> None:
        from pages.deploys.succession import settle_predecessor

        settle_predecessor()

    def end_soon(self) -> None:
        """Do nothing: Celery waits for its tasks."""

    def end(self) -> None:
        """Do nothing."""


PROCESS = DeployProcess()
