"""What the pages of the admin show above their forms, in a module for each kind of row. Loaded by the app's `ready`."""

from console.panels import accounts, cdn, hosts, namespaces, pages, webhooks, workspace_network, workspaces

__all__ = ["accounts", "cdn", "hosts", "namespaces", "pages", "webhooks", "workspace_network", "workspaces"]
