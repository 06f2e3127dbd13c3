"""The rows of the image catalog."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from workspaces.images import shapes


class Category(models.TextChoices):
    """Category by which entries are filtered, in the order in which the categories are shown."""

    OS = "os", "Operating systems"
    DEVTOOLS = "devtools", "Developer tools"
    RUNTIME = "runtime", "Languages and runtimes"
    AI = "ai", "AI and data"
    BROWSER = "browser", "Browsers"
    DATABASE = "database", "Databases"
    INFRA = "infra", "Infrastructure"


class Family(models.TextChoices):
    """The operating system of an image. No host runs macOS: its entries are shown and cannot be created."""

    LINUX = "linux", "Linux"
    MACOS = "macos", "macOS"


class CatalogEntry(models.Model):
    """One entry of the catalog. Written by `images.services`, which maintains `reference` and `revision`.

    Create also accepts images that are not listed. Nothing refers to the rows: a workspace stores a snapshot.
    """

    id = models.CharField(
        primary_key=True,
        max_length=64,
        validators=[RegexValidator(r"^[a-z0-9][a-z0-9.-]*\Z", "Lowercase letters, digits, dots and hyphens.")],
        help_text="Stable; user interfaces select by it.",
    )
    label = models.CharField(max_length=80)
    desc = models.CharField("description", max_length=300, help_text="One line.")
    category = models.CharField(max_length=16, choices=Category.choices)
    recommended = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=100, help_text="Entries are listed by it, then by label.")
    is_shown = models.BooleanField(
        "shown", default=True, help_text="A hidden entry is not listed and no workspace is made from its preset."
    )

    image = models.CharField(max_length=512, validators=[shapes.valid_reference])
    # `image` in full, as `parse_reference` reads it. The image of a create request is compared with it.
    reference = models.CharField(max_length=600, editable=False, db_index=True)
    base_image = models.CharField(
        max_length=512,
        blank=True,
        default="",
        validators=[shapes.valid_reference],
        help_text="What the image is built on; may be given beside the preset.",
    )
    preset = models.CharField(
        max_length=120,
        null=True,
        blank=True,
        unique=True,
        validators=[RegexValidator(r"^[a-z0-9][a-z0-9.-]*\Z", "Lowercase letters, digits, dots and hyphens.")],
        help_text="Makes the entry usable as `preset` on create.",
    )
    os_family = models.CharField(max_length=16, choices=Family.choices, default=Family.LINUX)
    os_distribution = models.CharField(max_length=60)
    os_version = models.CharField(max_length=60, blank=True, default="")
    logo = models.CharField(
        max_length=300, blank=True, default="", help_text="A file under /static/, or an address (https://...)."
    )
    color = models.CharField(
        max_length=7, blank=True, default="", validators=[RegexValidator(r"^#[0-9a-f]{6}\Z", "As #rrggbb, lowercase.")]
    )
    includes = models.JSONField(default=list, blank=True, validators=[shapes.valid_lines], help_text="Strings.")
    keywords = models.JSONField(
        default=list, blank=True, validators=[shapes.valid_lines], help_text="Strings; searched and not shown."
    )
    software = models.JSONField(
        default=list, blank=True, validators=[shapes.valid_software], help_text='Items {"name", "version"}.'
    )
    env = models.JSONField(
        default=list,
        blank=True,
        validators=[shapes.valid_env],
        help_text='Items {"key", "desc", "required", "default"}. Defaults are set for workspaces made by preset.',
    )
    vm_defaults = models.JSONField(
        default=dict,
        blank=True,
        validators=[shapes.valid_sizes],
        help_text='{"cpus", "memory_mb", "disk_size_mb"}: used by preset where the request leaves them out.',
    )
    capabilities = models.JSONField(default=list, blank=True, validators=[shapes.valid_words], help_text="Words.")
    desktop = models.JSONField(
        null=True,
        blank=True,
        validators=[shapes.valid_desktop],
        help_text='{"installable", "prepared", "vm_defaults", "minimum_resources", "cmd"}, or nothing.',
    )
    revision = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["position", "label"]
        verbose_name_plural = "catalog entries"

    def __str__(self) -> str:
        return f"{self.label} ({self.id})"
