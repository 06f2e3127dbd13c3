from django.apps import AppConfig


class EdgeConfig(AppConfig):
    name = "edge"
    verbose_name = "Edge"
    default_auto_field = "django.db.models.BigAutoField"
