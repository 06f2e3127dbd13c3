"""States of pages and of their deploys (specification, Pages and sandboxes)."""

from __future__ import annotations

from django.db import models


class PageStatus(models.TextChoices):
    """Status of a page. `disabled`: its name is removed from the edge, its releases stay."""

    ACTIVE = "active"
    DISABLED = "disabled"


class DeploymentState(models.TextChoices):
    """State of the last deploy of a page, as its owner sees it."""

    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    FAILED = "failed"


class DeployState(models.TextChoices):
    """Progress of a deploy. The last two states are final.

    queued -> running                   claimed: sets the claim token, the attempt and the heartbeat
    running -> queued                   the claim owner died, or the attempt is tried again
    running -> succeeded, failed        by the claim owner only
    queued -> failed                    past the deadline
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


LIVE = (DeployState.QUEUED, DeployState.RUNNING)
