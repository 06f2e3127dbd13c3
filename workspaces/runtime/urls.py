"""Routes of the runtime, below `/r/`, and below the address of a workspace where each has its own.

Every route is also below `runtimes/default/` and `runtimes/local/`, as existing clients have it.
"""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

# Registers itself; with the routes, as a process without them needs no description of them.
from workspaces.runtime import openapi  # noqa: F401
from workspaces.runtime.information import InformationViewSet

information = InformationViewSet.as_view
LEVEL: list[URLPattern | URLResolver] = [
    path("health", information({"get": "health"})),
    path("runtime", information({"get": "runtime"})),
    path("runtimes", information({"get": "runtimes"})),
]
urlpatterns = [*LEVEL, *(path(f"runtimes/{target}/", include(LEVEL)) for target in ("default", "local"))]
