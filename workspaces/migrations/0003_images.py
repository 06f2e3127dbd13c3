"""The image catalog with its first entries, and what a workspace keeps of the entry it was made from."""

import django.core.validators
import django.utils.timezone
import workspaces.images.shapes
from django.db import migrations, models
from workspaces.images.seed import seed


def add(apps, schema_editor):
    seed(apps.get_model("workspaces", "CatalogEntry"))


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0002_lifecycle'),
    ]

    operations = [
        migrations.CreateModel(
            name='CatalogEntry',
            fields=[
                ('id', models.CharField(help_text='Stable; user interfaces select by it.', max_length=64, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9.-]*\\Z', 'Lowercase letters, digits, dots and hyphens.')])),
                ('label', models.CharField(max_length=80)),
                ('desc', models.CharField(help_text='One line.', max_length=300, verbose_name='description')),
                ('category', models.CharField(choices=[('os', 'Operating systems'), ('devtools', 'Developer tools'), ('runtime', 'Languages and runtimes'), ('ai', 'AI and data'), ('browser', 'Browsers'), ('database', 'Databases'), ('infra', 'Infrastructure')], max_length=16)),
                ('recommended', models.BooleanField(default=False)),
                ('position', models.PositiveIntegerField(default=100, help_text='Entries are listed by it, then by label.')),
                ('is_shown', models.BooleanField(default=True, help_text='A hidden entry is not listed and no workspace is made from its preset.', verbose_name='shown')),
                ('image', models.CharField(max_length=512, validators=[workspaces.images.shapes.valid_reference])),
                ('reference', models.CharField(db_index=True, editable=False, max_length=600)),
                ('base_image', models.CharField(blank=True, default='', help_text='What the image is built on; may be given beside the preset.', max_length=512, validators=[workspaces.images.shapes.valid_reference])),
                ('preset', models.CharField(blank=True, help_text='Makes the entry usable as `preset` on create.', max_length=120, null=True, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9.-]*\\Z', 'Lowercase letters, digits, dots and hyphens.')])),
                ('os_family', models.CharField(choices=[('linux', 'Linux'), ('macos', 'macOS')], default='linux', max_length=16)),
                ('os_distribution', models.CharField(max_length=60)),
                ('os_version', models.CharField(blank=True, default='', max_length=60)),
                ('logo', models.CharField(blank=True, default='', help_text='A file under /static/, or an address (https://...).', max_length=300)),
                ('color', models.CharField(blank=True, default='', max_length=7, validators=[django.core.validators.RegexValidator('^#[0-9a-f]{6}\\Z', 'As #rrggbb, lowercase.')])),
                ('includes', models.JSONField(blank=True, default=list, help_text='Strings.', validators=[workspaces.images.shapes.valid_lines])),
                ('keywords', models.JSONField(blank=True, default=list, help_text='Strings; searched and not shown.', validators=[workspaces.images.shapes.valid_lines])),
                ('software', models.JSONField(blank=True, default=list, help_text='Items {"name", "version"}.', validators=[workspaces.images.shapes.valid_software])),
                ('env', models.JSONField(blank=True, default=list, help_text='Items {"key", "desc", "required", "default"}. Defaults are set for workspaces made by preset.', validators=[workspaces.images.shapes.valid_env])),
                ('vm_defaults', models.JSONField(blank=True, default=dict, help_text='{"cpus", "memory_mb", "disk_size_mb"}: used by preset where the request leaves them out.', validators=[workspaces.images.shapes.valid_sizes])),
                ('capabilities', models.JSONField(blank=True, default=list, help_text='Words.', validators=[workspaces.images.shapes.valid_words])),
                ('desktop', models.JSONField(blank=True, help_text='{"installable", "prepared", "vm_defaults", "minimum_resources", "cmd"}, or nothing.', null=True, validators=[workspaces.images.shapes.valid_desktop])),
                ('revision', models.PositiveIntegerField(default=1, editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name_plural': 'catalog entries',
                'ordering': ['position', 'label'],
            },
        ),
        migrations.AddField(
            model_name='workspace',
            name='image_pin',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.RunPython(add, migrations.RunPython.noop),
    ]
