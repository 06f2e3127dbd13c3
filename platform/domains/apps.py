from django.apps import AppConfig


class DomainsConfig(AppConfig):
    name = "domains"

    def ready(self) -> None:
        from certificates import hooks
        from domains import check, publication

        hooks.dns_points_here.register(check.reason_not_here)
        hooks.certificate_changed.register(publication.certificate_mark)
