"""The query of the catalog."""

from __future__ import annotations

from rest_framework import serializers

from common.openapi import Success
from workspaces.images.models import Category, Family
from workspaces.images.selectors import EVERY_CATEGORY


class CatalogQuery(serializers.Serializer):
    search = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        help_text="Words, each found in id, label, description, image reference, contents or keywords.",
    )
    category = serializers.ChoiceField([EVERY_CATEGORY, *Category.values], default=EVERY_CATEGORY)


class BaseOs(serializers.Serializer):
    family = serializers.ChoiceField(Family.choices)
    distribution = serializers.CharField()
    version = serializers.CharField()


class CatalogEnvItem(serializers.Serializer):
    key = serializers.CharField()
    desc = serializers.CharField()
    required = serializers.BooleanField(help_text="To be in `config.env`.")  # type: ignore[assignment]  # the specification's name
    default = serializers.CharField(required=False, help_text="What a workspace made by preset gets.")


class CatalogSoftware(serializers.Serializer):
    name = serializers.CharField()
    version = serializers.CharField()


class CatalogSizes(serializers.Serializer):
    cpus = serializers.FloatField(required=False)
    memory_mb = serializers.IntegerField(required=False)
    disk_size_mb = serializers.IntegerField(required=False, help_text="MiB")


class CatalogDesktop(serializers.Serializer):
    installable = serializers.BooleanField(help_text="`config.desktop.enabled` is accepted.")
    prepared = serializers.BooleanField(help_text="Its programs are in the image; nothing is downloaded.")
    vm_defaults = CatalogSizes()
    minimum_resources = CatalogSizes()


class CatalogEntryObject(serializers.Serializer):
    id = serializers.CharField(help_text="Stable; not what create takes.")
    label = serializers.CharField()  # type: ignore[assignment]  # the specification's name
    desc = serializers.CharField()
    category = serializers.ChoiceField(Category.choices)
    image = serializers.CharField(help_text="What create takes as `image`.")
    base_os = BaseOs()
    logo = serializers.CharField(allow_null=True, help_text="URL")
    color = serializers.CharField(allow_null=True, help_text="#rrggbb")
    recommended = serializers.BooleanField()
    includes = serializers.ListField(child=serializers.CharField())
    env = CatalogEnvItem(many=True)
    preset = serializers.CharField(allow_null=True, help_text="What create takes as `preset`.")
    base_image = serializers.CharField(allow_null=True)
    revision = serializers.IntegerField(help_text="Counts the changes of this entry.")
    software = CatalogSoftware(many=True)
    vm_defaults = CatalogSizes()
    capabilities = serializers.ListField(child=serializers.CharField())
    desktop = CatalogDesktop(allow_null=True)


class CatalogCategory(serializers.Serializer):
    id = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the specification's name


class CatalogResponse(Success):
    images = CatalogEntryObject(many=True)
    categories = CatalogCategory(many=True)
