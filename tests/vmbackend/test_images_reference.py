"""References are parsed as Docker does; everything else is rejected."""

from __future__ import annotations

import pytest

from vmbackend.errors import ImageError
from vmbackend.images.reference import parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("bitnami/redis", "docker.io/bitnami/redis:latest"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/a/b:1", "docker.io/a/b:1"),
        ("ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"),
        ("registry:5000/app", "registry:5000/app:latest"),
        ("127.0.0.1:5000/app:x", "127.0.0.1:5000/app:x"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("localhost/workspace", "localhost/workspace:latest"),
        ("dir:1", "docker.io/library/dir:1"),
        (f"ghcr.io/a/b:v1@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
    ],
)
def test_references_are_completed_as_docker_does(text: str, complete: str) -> None:
    assert str(parse_reference(text)) == complete


def test_localhost_is_the_local_store_only_without_a_port() -> None:
    assert parse_reference("localhost/a").is_local
    assert not parse_reference("localhost:5000/a").is_local


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-x",
            "--authfile=/etc/shadow",
            "--help/x",
            "a b",
            "a\nb",
            "a\x00b",
            "a\tb",
            "ä",
            "a" * 600,
        ),
        *("docker://python", "https://x/y", "dir:/etc", "docker-archive:/tmp/x.tar", "oci:/var/x:tag"),
        *(
            "containers-storage:x/y",
            "docker-daemon:x:y:z",
            "../etc/passwd",
            "/etc/passwd",
            "a/../b",
            "UPPER/x",
        ),
        *("a:", "a@sha256:12", "a@md5:" + "a" * 32, "localhost/../../etc", "a:b:c", "x/@sha256:" + "a" * 64),
    ],
)
def test_an_invalid_reference_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_reference(text)
    assert caught.value.message.endswith(".")
