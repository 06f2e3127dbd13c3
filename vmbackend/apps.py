from django.apps import AppConfig


class VmbackendConfig(AppConfig):
    name = "vmbackend"
    verbose_name = "Hosts"
