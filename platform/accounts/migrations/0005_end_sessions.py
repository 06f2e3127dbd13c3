from django.db import migrations


def end_sessions(apps, schema_editor):
    """Sessions stored under their own keys: they are not found any more, and the keys would stay readable."""
    apps.get_model("sessions", "Session").objects.all().delete()


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0004_drop_eventstream_tables'),
        ('sessions', '0001_initial'),
    ]

    operations = [
        migrations.RunPython(end_sessions, migrations.RunPython.noop),
    ]
