from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class PagesConfig(AppConfig):
    name = "pages"

    def ready(self) -> None:
        from accounts.hooks import account_switched
        from domains import hooks as domain_hooks
        from edge.hooks import page_rules
        from namespaces import hooks
        from pages import custom_domains, services

        hooks.contents_move.register(services.pages_move)
        account_switched.register(services.pages_follow)
        page_rules.register(_rules_path)
        domain_hooks.served_targets.register(custom_domains.served_pages)
        domain_hooks.target_lock.register(custom_domains.lock_page)
        domain_hooks.domain_event.register(custom_domains.domain_event)


def _rules_path(application: WSGIApplication) -> WSGIApplication:
    """Wrap the application. The import is here so that the api loads it when it starts, not every process."""
    from pages.edge_rules import PageRulesPath

    return PageRulesPath(application)
