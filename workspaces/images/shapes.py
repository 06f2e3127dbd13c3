"""Shapes of the JSON columns of a catalog entry. Each `valid_*` is a validator of a model field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as ShapeError

from vmbackend.errors import ImageError
from vmbackend.images.reference import parse_reference

Line = Annotated[str, Field(min_length=1, max_length=200)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


class Shape(BaseModel):
    """Base of the shapes: no other keys, and no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EnvItem(Shape):
    """A variable of the image's environment. A required one must be in `config.env` on create."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,255}$")]
    desc: Line
    required: bool = False
    default: str | None = None


class Sizes(Shape):
    """Resources, each of which may be left out; the ranges of the specification."""

    cpus: Annotated[float, Field(ge=0.1, le=12)] | None = None
    memory_mb: Annotated[int, Field(ge=128, le=65536)] | None = None
    disk_size_mb: Annotated[int, Field(ge=64, le=1_048_576)] | None = None


class Software(Shape):
    """A program that the image contains, for the catalog's list and search."""

    name: Line
    version: Annotated[str, Field(max_length=60)] = ""


class DesktopShape(Shape):
    """Desktop of an image. `prepared`: its programs are in the image. `cmd` starts it, as the workload `desktop`; never
    shown to callers.
    """

    installable: bool
    prepared: bool = False
    vm_defaults: Sizes = Sizes()
    minimum_resources: Sizes = Sizes()
    cmd: Annotated[list[Annotated[str, Field(max_length=16_384)]], Field(max_length=64)] = []


LINES, WORDS = TypeAdapter(list[Line]), TypeAdapter(list[Word])
ENV, SOFTWARE = TypeAdapter(list[EnvItem]), TypeAdapter(list[Software])
SIZES, DESKTOP = TypeAdapter(Sizes), TypeAdapter(DesktopShape)


def _fits(adapter: TypeAdapter[Any], value: Any) -> None:
    try:
        adapter.validate_python(value)
    except ShapeError as exc:
        where = ((".".join(map(str, error["loc"])), error["msg"]) for error in exc.errors())
        raise ValidationError([f"{place or 'value'}: {text}." for place, text in where]) from exc


def valid_lines(value: Any) -> None:
    _fits(LINES, value)


def valid_words(value: Any) -> None:
    _fits(WORDS, value)


def valid_env(value: Any) -> None:
    _fits(ENV, value)
    keys = [item["key"] for item in value]
    if len(set(keys)) != len(keys):
        raise ValidationError("Two items have the same key.")


def valid_software(value: Any) -> None:
    _fits(SOFTWARE, value)


def valid_sizes(value: Any) -> None:
    _fits(SIZES, value)


def valid_desktop(value: Any) -> None:
    _fits(DESKTOP, value)


def valid_reference(value: str) -> None:
    try:
        parse_reference(value)
    except ImageError as exc:
        raise ValidationError(exc.message) from exc


def columns(sizes: Mapping[str, Any] | None) -> dict[str, int]:
    """Return sizes as the columns of a workspace that they set: thousandths of a CPU, MiB, MiB."""
    given = {name: value for name, value in (sizes or {}).items() if value is not None}
    if "cpus" in given:
        given["cpu_millis"] = round(given.pop("cpus") * 1000)
    return given
