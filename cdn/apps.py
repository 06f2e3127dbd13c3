from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class CdnConfig(AppConfig):
    name = "cdn"
    verbose_name = "CDN"

    def ready(self) -> None:
        from accounts.hooks import account_switched
        from cdn.hooks import bytes_withdrawn, file_received
        from cdn.media import withdrawal
        from cdn.media.notifications import notify_worker, request_removal
        from cdn.services import moves
        from edge.hooks import cdn_path
        from namespaces import hooks

        account_switched.register(withdrawal.follow_account_links)
        cdn_path.register(_delivery_path)
        file_received.register(notify_worker)
        bytes_withdrawn.register(request_removal)
        hooks.contents_move.register(moves.files_move)


def _delivery_path(application: WSGIApplication) -> WSGIApplication:
    """Wrap the application. The import is here so that the api loads it when it starts, not every process."""
    from cdn.delivery_views.edge_path import CdnPath

    return CdnPath(application)
