"""Settings of placement; a part of `config.env.Env`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from config.env_types import Labels


class PlacementSettings(BaseModel):
    """Which of several hosts gets a new machine, and the labels of hosts for which creates may ask."""

    placement: Literal["spread", "pack"] = "spread"
    placement_labels: Labels = ()
