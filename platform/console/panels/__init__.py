"""Panels above the forms of the admin, in a module for each kind of row. The app's `ready` loads them."""

from console.panels import accounts, cdn, hosts, namespaces, pages, webhooks, workspace_network, workspaces

__all__ = ["accounts", "cdn", "hosts", "namespaces", "pages", "webhooks", "workspace_network", "workspaces"]
