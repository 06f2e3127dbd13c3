"""Query and response of the catalog route (specification, Image catalog entry)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer
from workspaces.images.catalog_snapshots import logo_url
from workspaces.images.models import CatalogEntry, Category, Family
from workspaces.images.selectors import EVERY_CATEGORY


class CatalogQuery(serializers.Serializer[Any]):
    search = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        help_text="Words, each found in id, label, description, image reference, contents or keywords.",
    )
    category = serializers.ChoiceField([EVERY_CATEGORY, *Category.values], default=EVERY_CATEGORY)


class BaseOs(ResponseSerializer):
    family = serializers.ChoiceField(Family.choices, source="os_family")
    distribution = serializers.CharField(source="os_distribution")
    version = serializers.CharField(source="os_version")


class CatalogEnvItem(ResponseSerializer):
    key = serializers.CharField()
    desc = serializers.CharField()
    required = serializers.BooleanField(help_text="It must be in `config.env`.")  # type: ignore[assignment]  # the specification's name
    default = serializers.CharField(required=False, help_text="The value in a workspace created from the preset.")

    def to_representation(self, item: dict[str, Any]) -> dict[str, Any]:
        return super().to_representation({"required": False, **item})


class CatalogSoftware(ResponseSerializer):
    name = serializers.CharField()
    version = serializers.CharField()

    def to_representation(self, item: dict[str, str]) -> dict[str, Any]:
        return super().to_representation({"version": "", **item})


class CatalogSizes(ResponseSerializer):
    cpus = serializers.FloatField(required=False)
    memory_mb = serializers.IntegerField(required=False)
    disk_size_mb = serializers.IntegerField(required=False, help_text="MiB")


class CatalogDesktop(ResponseSerializer):
    installable = serializers.BooleanField(help_text="`config.desktop.enabled` is accepted.")
    prepared = serializers.BooleanField(help_text="Its programs are in the image; nothing is downloaded.")
    vm_defaults = CatalogSizes()
    minimum_resources = CatalogSizes()

    def to_representation(self, desktop: dict[str, Any]) -> dict[str, Any]:
        return super().to_representation({"prepared": False, "vm_defaults": {}, "minimum_resources": {}, **desktop})


class CatalogEntryObject(ResponseSerializer):
    id = serializers.CharField(help_text="Stable. Create takes `image` or `preset`, not this.")
    label = serializers.CharField()  # type: ignore[assignment]  # the specification's name
    desc = serializers.CharField()
    category = serializers.ChoiceField(Category.choices)
    image = serializers.CharField(help_text="The value for `image` of a create request.")
    base_os = BaseOs(source="*")
    logo = serializers.CharField(allow_null=True, help_text="URL")
    color = BlankAsNull(help_text="#rrggbb")
    recommended = serializers.BooleanField()
    includes = serializers.ListField(child=serializers.CharField())
    env = CatalogEnvItem(many=True)
    preset = serializers.CharField(allow_null=True, help_text="The value for `preset` of a create request.")
    base_image = BlankAsNull()
    revision = serializers.IntegerField(help_text="Incremented with each change of the entry.")
    software = CatalogSoftware(many=True)
    vm_defaults = CatalogSizes()
    capabilities = serializers.ListField(child=serializers.CharField())
    desktop = CatalogDesktop(allow_null=True)

    def read_logo(self, entry: CatalogEntry) -> str | None:
        return logo_url(entry.logo)


class CatalogCategory(ResponseSerializer):
    id = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the specification's name


class CatalogResponse(Success):
    images = CatalogEntryObject(many=True)
    categories = CatalogCategory(many=True)
