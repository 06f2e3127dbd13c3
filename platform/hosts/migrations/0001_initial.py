import django.db.models.deletion
import hosts.models
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('vmbackend', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='JoinToken',
            fields=[
                ('id', models.CharField(default=hosts.models.new_token_id, editable=False, max_length=24, primary_key=True, serialize=False)),
                ('token_hash', models.CharField(editable=False, max_length=64, unique=True)),
                ('name', models.CharField(blank=True, max_length=40)),
                ('created_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('machine_id', models.CharField(blank=True, default='', max_length=64)),
                ('host', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='join_tokens', to='vmbackend.host')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
    ]
