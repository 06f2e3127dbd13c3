"""A hundred workspace objects by `ResponseSerializer`, beside the same declaration by DRF's own `Serializer`.

.venv/bin/python -m benchmarks.representation
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import django

django.setup()

from django.utils import timezone  # noqa: E402 Django must be set up first
from rest_framework import serializers as s  # noqa: E402

from common.serializers import ResponseSerializer  # noqa: E402
from namespaces.models import Namespace  # noqa: E402
from workspaces.models import Workspace  # noqa: E402
from workspaces.serializers import WorkspaceObject  # noqa: E402

ROWS, ROUNDS = 100, 50


def rows() -> list[Workspace]:
    sizes = {f"{prefix}{name}": 512 for prefix in ("", "applied_") for name in ("memory_mb", "disk_size_mb")}
    return [
        Workspace(
            namespace=Namespace(slug="default"),
            name=f"workspace {number}",
            slug=f"workspace-{number}",
            image="docker.io/library/ubuntu:24.04",
            ip="10.0.0.2",
            cpu_millis=1000,
            applied_cpu_millis=1000,
            status="running",
            ready=True,
            started_at=timezone.now(),
            provisioning_state="ready",
            **sizes,
        )
        for number in range(ROWS)
    ]


def drf_twin(declared: type[ResponseSerializer]) -> type[s.Serializer]:
    """The same fields in a plain `Serializer`; methods `read_<field>` become method fields."""
    attributes: dict[str, Any] = {}
    for name, field in declared().fields.items():
        options = {} if field.source == name else {"source": field.source}
        reader = getattr(declared, f"read_{name}", None)
        if reader is not None:
            attributes[name] = s.SerializerMethodField(method_name=f"read_{name}")
            attributes[f"read_{name}"] = reader
        elif isinstance(field, s.ListSerializer):
            attributes[name] = drf_twin(type(field.child))(many=True, **options)
        elif isinstance(field, ResponseSerializer):
            attributes[name] = drf_twin(type(field))(allow_null=field.allow_null, **options)
        else:
            attributes[name] = copy.deepcopy(field)
    return type(declared.__name__, (s.Serializer,), attributes)


def best_ms(run: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """The shortest of each, in turns."""
    found: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(ROUNDS):
        for number, call in enumerate((run, other)):
            begun = time.perf_counter()
            call()
            found[number].append((time.perf_counter() - begun) * 1000)
    return min(found[0]), min(found[1])


def main() -> None:
    made, twin = rows(), drf_twin(WorkspaceObject)
    fast, plain = best_ms(
        lambda: WorkspaceObject(made, many=True).data,
        lambda: twin(made, many=True).data,
    )
    print(f"  {ROWS} workspace objects: ResponseSerializer {fast:.2f} ms, DRF's Serializer {plain:.2f} ms")
    print(f"  ratio: {plain / fast:.1f}")


if __name__ == "__main__":
    main()
