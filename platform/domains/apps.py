from django.apps import AppConfig


class DomainsConfig(AppConfig):
    name = "domains"

    def ready(self) -> None:
        from certificates import hooks
        from domains import publication

        hooks.dns_points_here.register(_reason_not_here)
        hooks.certificate_changed.register(publication.mark_certificate)


def _reason_not_here(name: str) -> str | None:
    # Not at the start: of all processes one orders certificates, and asks the DNS for it.
    from domains.check import reason_not_here

    return reason_not_here(name)
