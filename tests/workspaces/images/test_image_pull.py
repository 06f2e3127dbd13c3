"""`manage.py image_pull`: by reference, by catalog entry, with progress."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from rich.console import Console

from vmbackend.management import progress
from workspaces.models import CatalogEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]


def pulled(*arguments: str) -> list[str]:
    out = io.StringIO()
    call_command("image_pull", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_a_reference_is_pulled_and_its_digest_printed() -> None:
    lines = pulled("localhost/tiny:1")
    assert lines[0] == "localhost/tiny:1: 100% The image is ready."
    assert lines[1].startswith("localhost/tiny:1 is sha256:")


def test_entries_are_pulled_by_id_and_by_preset() -> None:
    CatalogEntry.objects.filter(pk="redis").update(preset="cache", is_shown=False)
    lines = pulled("--entry", "python", "--entry", "cache", "--entry", "redis", "alpine:3.20")
    names = [line.split(" is ")[0] for line in lines if " is sha256:" in line]
    assert names == ["alpine:3.20", "docker.io/library/python:3.12", "docker.io/library/redis:7"]


def test_one_that_fails_does_not_keep_the_others() -> None:
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"registry.test/missing: The registry has no such image") as caught:
        call_command("image_pull", "registry.test/missing", "localhost/tiny:1", stdout=out)
    assert "localhost/tiny:1 is sha256:" in out.getvalue()
    assert len(str(caught.value).splitlines()) == 1


def test_an_unknown_entry_and_no_entry_are_reported() -> None:
    with pytest.raises(CommandError, match="no entry and no preset never"):
        pulled("--entry", "never")
    with pytest.raises(CommandError, match="Name an image"):
        pulled()


def test_on_a_terminal_each_image_has_a_bar() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with progress.show_progress(lambda line: pytest.fail("no lines on a terminal"), console) as begin:
        for title in ("docker.io/library/[a]:1", "two"):
            report = begin(title)
            report(40, "Unpacking [bold]layers.")
            report(100, "The image is ready.")
    last = screen.getvalue().split("\n")
    assert any("docker.io/library/[a]:1" in line and "100%" in line for line in last)
    assert any("two" in line and "The image is ready." in line for line in last)


def test_elsewhere_a_line_is_written_when_something_new_is_said() -> None:
    lines: list[str] = []
    with progress.show_progress(lines.append, None) as begin:
        report = begin("x")
        for percent in range(0, 50, 10):
            report(percent, "Downloading.")
        report(50, "Unpacking.")
    assert lines == ["x:   0% Downloading.", "x:  50% Unpacking."]
