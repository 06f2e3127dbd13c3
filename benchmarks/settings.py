"""The platform's settings with one more route: an empty view behind the platform's own authentication."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.urls"
