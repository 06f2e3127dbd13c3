"""Hooks for what higher apps add to the edge's side of the api process (common/hooks.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.hooks import Hook

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# Wraps the api's WSGI application in one that answers the edge's authorization requests before Django does. Called once
# in each process that serves the api, when all apps are ready.
auth_fast_path: Hook[[WSGIApplication], WSGIApplication] = Hook("auth_fast_path")
# Likewise for the edge's questions about rules of pages.
page_rules: Hook[[WSGIApplication], WSGIApplication] = Hook("page_rules")
# Likewise for the certificates of names that users bring.
certificate_path: Hook[[WSGIApplication], WSGIApplication] = Hook("certificate_path")
# Likewise for files of the CDN that the edge has no link of.
cdn_path: Hook[[WSGIApplication], WSGIApplication] = Hook("cdn_path")
