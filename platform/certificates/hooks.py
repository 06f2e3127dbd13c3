"""Hooks for the app above, which owns the names (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.hooks import Hook

# Before each order: None if the CA would find this platform under the name, else a sentence for the owner, who is
# shown
# it while the certificate stays `pending`. May take seconds; called outside of transactions, in the worker.
dns_points_here: Hook[[str], str | None] = Hook("certificates.dns_points_here")
# After the commit by which a name's certificate can be served (True), or can no longer be (False: removed, expired).
# It may
# be called more than once, also without a change, and is called again until it returns: handlers are idempotent.
certificate_changed: Hook[[str, bool], None] = Hook("certificates.certificate_changed")
