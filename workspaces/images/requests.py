"""The query of the catalog."""

from __future__ import annotations

from rest_framework import serializers

from workspaces.images.models import Category
from workspaces.images.selectors import EVERY_CATEGORY


class CatalogQuery(serializers.Serializer):
    search = serializers.CharField(
        max_length=255,
        default="",
        allow_blank=True,
        help_text="Words, each found in id, label, description, image reference, contents or keywords.",
    )
    category = serializers.ChoiceField([EVERY_CATEGORY, *Category.values], default=EVERY_CATEGORY)
