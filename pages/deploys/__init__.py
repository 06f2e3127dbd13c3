"""Deploys: from a folder in a workspace to a live release. Carried out by the worker `pages`."""
