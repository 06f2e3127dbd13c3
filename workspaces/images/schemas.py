"""Shapes of the catalog's response for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success
from workspaces.images.models import Category, Family


class BaseOs(s.Serializer):
    family = s.ChoiceField(Family.choices)
    distribution = s.CharField()
    version = s.CharField()


class CatalogEnvItem(s.Serializer):
    key = s.CharField()
    desc = s.CharField()
    required = s.BooleanField(help_text="To be in `config.env`.")  # type: ignore[assignment]  # the specification's name
    default = s.CharField(required=False, help_text="What a workspace made by preset gets.")


class CatalogSoftware(s.Serializer):
    name = s.CharField()
    version = s.CharField()


class CatalogSizes(s.Serializer):
    cpus = s.FloatField(required=False)
    memory_mb = s.IntegerField(required=False)
    disk_size_mb = s.IntegerField(required=False, help_text="MiB")


class CatalogDesktop(s.Serializer):
    installable = s.BooleanField(help_text="`config.desktop.enabled` is accepted.")
    prepared = s.BooleanField(help_text="Its programs are in the image; nothing is downloaded.")
    vm_defaults = CatalogSizes()
    minimum_resources = CatalogSizes()


class CatalogEntryObject(s.Serializer):
    id = s.CharField(help_text="Stable; not what create takes.")
    label = s.CharField()  # type: ignore[assignment]  # the specification's name
    desc = s.CharField()
    category = s.ChoiceField(Category.choices)
    image = s.CharField(help_text="What create takes as `image`.")
    base_os = BaseOs()
    logo = s.CharField(allow_null=True, help_text="URL")
    color = s.CharField(allow_null=True, help_text="#rrggbb")
    recommended = s.BooleanField()
    includes = s.ListField(child=s.CharField())
    env = CatalogEnvItem(many=True)
    preset = s.CharField(allow_null=True, help_text="What create takes as `preset`.")
    base_image = s.CharField(allow_null=True)
    revision = s.IntegerField(help_text="Counts the changes of this entry.")
    software = CatalogSoftware(many=True)
    vm_defaults = CatalogSizes()
    capabilities = s.ListField(child=s.CharField())
    desktop = CatalogDesktop(allow_null=True)


class CatalogCategory(s.Serializer):
    id = s.CharField()
    label = s.CharField()  # type: ignore[assignment]  # the specification's name


class CatalogResponse(Success):
    images = CatalogEntryObject(many=True)
    categories = CatalogCategory(many=True)
