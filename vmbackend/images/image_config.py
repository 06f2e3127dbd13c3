"""The used part of an image's configuration, which is untrusted text."""

from __future__ import annotations

from typing import Any

from vmbackend.errors import ImageBroken
from vmbackend.images.types import ImageConfig

MAX_VOLUMES = 64
MAX_VOLUME = 1024  # characters
_DAMAGED_CONFIG = "The image's configuration is damaged."


def parse_config(document: dict[str, Any]) -> ImageConfig:
    """Return the used part of an image's untrusted configuration. Raise ImageBroken."""
    inner = _object(document.get("config"))
    return ImageConfig(
        entrypoint=_strings(inner.get("Entrypoint")),
        cmd=_strings(inner.get("Cmd")),
        env={name: value for name, value in map(_pair, _strings(inner.get("Env"))) if name},
        working_dir=_string(inner.get("WorkingDir") or ""),
        user=_string(inner.get("User") or ""),
        stop_signal=_string(inner.get("StopSignal") or ""),
        exposed_ports=_strings(sorted(_object(inner.get("ExposedPorts")))),
        volumes=tuple(filter(_is_volume, _volumes(inner)))[:MAX_VOLUMES],
        labels={_string(key): _string(value) for key, value in _object(inner.get("Labels")).items()},
    )


def config_changes(document: dict[str, Any]) -> list[str]:
    """Return what of the configuration is not followed, as sentences. Raise ImageBroken."""
    inner = _object(document.get("config"))
    test = _object(inner.get("Healthcheck")).get("Test")
    changes = ["left out: the image's health check, which is not run"] if test and test != ["NONE"] else []
    volumes = _volumes(inner)
    if left_out := len(volumes) - len([*filter(_is_volume, volumes)][:MAX_VOLUMES]):
        changes.append(f"left out: {left_out} of the image's {len(volumes)} volumes, whose folders are not made")
    if any(not _pair(item)[0] for item in _strings(inner.get("Env"))):
        changes.append("left out: variables of the environment without a name")
    return changes


def _volumes(inner: dict[str, Any]) -> list[str]:
    return [_string(path) for path in _object(inner.get("Volumes"))]


def _is_volume(path: str) -> bool:
    return bool(path) and len(path) <= MAX_VOLUME


def _object(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ImageBroken(_DAMAGED_CONFIG)
    return value


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value


def _strings(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ImageBroken(_DAMAGED_CONFIG)
    return tuple(_string(item) for item in value)


def _string(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ImageBroken(_DAMAGED_CONFIG)
    try:
        value.encode()  # JSON can spell halves of surrogate pairs, which no file or database takes
    except UnicodeEncodeError as error:
        raise ImageBroken(_DAMAGED_CONFIG) from error
    return value
