"""Which manifest of an index a pull takes, at any level."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from vmbackend.errors import ImageBroken, ImageWrongPlatform
from vmbackend.images.indexes import MAX_DOCUMENTS, MAX_LEVELS, PlatformSearch
from vmbackend.images.reference import parse_reference

REFERENCE = parse_reference("ghcr.io/a/b")
Entry = dict[str, Any]


class Registry:
    """What a registry has, and how many documents it was asked for."""

    def __init__(self) -> None:
        self.manifests: dict[str, Any] = {}
        self.configs: dict[str, Any] = {}
        self.asked = 0

    def add(self, manifest: Any) -> str:
        digest = "sha256:" + hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
        self.manifests[digest] = manifest
        return digest

    def image(self, name: str, arch: str = "amd64", **config: Any) -> str:
        digest = self.add({"schemaVersion": 2, "layers": [], "config": config, "name": name})
        self.configs[digest] = {"os": "linux", "architecture": arch}
        return digest

    def index(self, *entries: Entry) -> str:
        return self.add({"schemaVersion": 2, "manifests": list(entries)})

    def find(self, digest: str) -> str:
        return PlatformSearch(REFERENCE, "amd64", self._manifest, self._config).find(digest)[0]

    def _manifest(self, digest: str) -> Any:
        self.asked += 1
        return self.manifests[digest]

    def _config(self, digest: str) -> Any:
        self.asked += 1
        return self.configs[digest]


@pytest.fixture
def made() -> Registry:
    return Registry()


def entry(digest: str, arch: str | None = "amd64", **fields: Any) -> Entry:
    platform = {} if arch is None else {"platform": {"os": "linux", "architecture": arch, **fields}}
    return {"digest": digest, **platform}


def test_an_image_that_is_in_no_index_is_taken_as_it_is(made: Registry) -> None:
    image = made.image("a")
    assert made.find(image) == image


def test_an_entry_that_is_an_index_is_followed(made: Registry) -> None:
    ours, theirs = made.image("a"), made.image("b", "arm64")
    inner = made.index(entry(theirs, "arm64"), entry(ours))
    assert made.find(made.index(entry(inner))) == ours


def test_an_index_that_names_no_platform_is_searched_after_those_that_do(made: Registry) -> None:
    ours, other = made.image("a"), made.image("b")
    assert made.find(made.index(entry(made.index(entry(other)), None), entry(ours))) == ours
    assert made.find(made.index(entry(made.index(entry(other)), None))) == other


def test_where_no_entry_names_a_platform_the_configuration_decides(made: Registry) -> None:
    theirs, ours = made.image("a", "arm64"), made.image("b")
    assert made.find(made.index(entry(theirs, None), entry(ours, None))) == ours
    with pytest.raises(ImageWrongPlatform, match="made for linux/arm64;"):
        made.find(made.index(entry(theirs, None)))


def test_an_index_for_another_platform_is_not_followed(made: Registry) -> None:
    with pytest.raises(ImageWrongPlatform, match="made for linux/arm64;"):
        made.find(made.index(entry(made.index(entry(made.image("a"), None)), "arm64")))
    assert made.asked == 1


@pytest.mark.parametrize(
    "attestation",
    [
        {"platform": {"os": "unknown", "architecture": "unknown"}},
        {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}},
    ],
)
def test_an_attestation_is_no_image(made: Registry, attestation: Entry) -> None:
    ours = made.image("a")
    index = made.index({"digest": made.image("proof"), **attestation}, entry(ours, None))
    assert made.find(index) == ours
    only = made.index({"digest": made.image("proof"), **attestation})
    with pytest.raises(ImageWrongPlatform, match="no known platform"):
        made.find(only)


def test_what_is_no_image_is_passed_over_in_an_index_and_named_alone(made: Registry) -> None:
    chart = made.image("chart", mediaType="application/vnd.cncf.helm.config.v1+json")
    ours = made.image("a", mediaType="application/vnd.oci.image.config.v1+json")
    assert made.find(made.index(entry(chart, None), entry(ours, None))) == ours
    with pytest.raises(ImageBroken, match="is an artifact of another kind, not an image"):
        made.find(chart)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json", "text/html", ""])
def test_images_whose_configuration_has_an_old_type_are_images(made: Registry, kind: str) -> None:
    image = made.image("a", mediaType=kind)
    assert made.find(image) == image
    assert made.find(made.index(entry(image, None))) == image


@pytest.mark.parametrize("variant", [{}, {"variant": ""}, {"variant": "v1"}])
def test_the_first_variant_is_preferred(made: Registry, variant: dict[str, str]) -> None:
    new, plain = made.image("a"), made.image("b")
    assert made.find(made.index(entry(new, variant="v3"), entry(plain, **variant))) == plain
    assert made.find(made.index(entry(new, variant="v3"))) == new


def test_too_many_levels_are_refused(made: Registry) -> None:
    nested = made.image("a")
    for _ in range(MAX_LEVELS):
        nested = made.index(entry(nested))
    assert made.find(nested)
    with pytest.raises(ImageBroken, match=f"more than {MAX_LEVELS} levels"):
        made.find(made.index(entry(nested)))


def test_an_index_that_contains_itself_is_refused(made: Registry) -> None:
    """No registry can have one that is read by its digest, but a wrong digest is another check."""
    made.manifests["sha256:" + "0" * 64] = {"schemaVersion": 2, "manifests": [entry("sha256:" + "0" * 64)]}
    with pytest.raises(ImageBroken, match="levels"):
        made.find("sha256:" + "0" * 64)


def test_wide_indexes_without_platforms_end(made: Registry) -> None:
    inner = [made.index(*(entry(made.image(f"{row}.{n}", "arm64"), None) for n in range(9))) for row in range(9)]
    with pytest.raises(ImageBroken, match="lists too many images"):
        made.find(made.index(*(entry(each, None) for each in inner)))
    assert made.asked == MAX_DOCUMENTS


@pytest.mark.parametrize(
    "manifests",
    [5, "x", [5], [{"platform": {"os": "linux", "architecture": "amd64"}}], [{"digest": 5}], [{"digest": "md5:x"}]],
)
def test_a_damaged_index_is_said(made: Registry, manifests: object) -> None:
    with pytest.raises(ImageBroken, match="manifest is damaged"):
        made.find(made.add({"schemaVersion": 2, "manifests": manifests}))


def test_a_registrys_words_are_storable_text(made: Registry) -> None:
    strange = json.loads('{"platform": {"os": "\\ud800\\u0000", "architecture": "x"}}')
    with pytest.raises(ImageWrongPlatform) as caught:
        made.find(made.index({"digest": made.image("a"), **strange}))
    assert "made for ??/x;" in caught.value.message
