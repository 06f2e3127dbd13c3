from django.apps import AppConfig


class CertificatesConfig(AppConfig):
    name = "certificates"
    verbose_name = "Certificates"

    def ready(self) -> None:
        from certificates.edge_path import CertificatePath
        from edge.hooks import certificate_path

        certificate_path.register(CertificatePath)
