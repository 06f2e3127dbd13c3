from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class PagesConfig(AppConfig):
    name = "pages"

    def ready(self) -> None:
        from edge.hooks import page_rules
        from namespaces import hooks
        from pages import services

        hooks.contents_move.register(services.pages_move)
        page_rules.register(_rules_path)


def _rules_path(application: WSGIApplication) -> WSGIApplication:
    """Imported when the api starts, not by every process that loads the apps."""
    from pages.edge_rules import PageRulesPath

    return PageRulesPath(application)
