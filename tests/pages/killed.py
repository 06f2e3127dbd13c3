"""What a process does that is killed (tests/killed_process.py)."""

from __future__ import annotations

from pages import publication, services
from pages.deploys import requests, worker
from pages.models import Page
from workspaces.models import Workspace


def deploy_next() -> None:
    """As the worker does when it is notified of the queued deploy."""
    worker.deploy_run()


def request_deploy() -> None:
    """As a request does, of the only page from the only workspace."""
    page = Page.objects.select_related("account").get()
    requests.page_deploy(page=page, workspace=Workspace.objects.get(), path="/site", actor="test")


def rename() -> None:
    """To the other one of two slugs, as a request does."""
    page = Page.objects.get()
    slug = {"abc": "def", "def": "abc"}[page.slug]
    publication.publish_page(services.page_update(page=page, slug=slug, actor="test"))


def rollback() -> None:
    """To the other one of two releases."""
    page = Page.objects.get()
    publication.publish_page(services.page_rollback(page=page, number={1: 2, 2: 1}[page.release or 0], actor="test"))


def disable() -> None:
    publication.publish_page(services.page_disable(page=Page.objects.get(), actor="test"))


def enable() -> None:
    publication.publish_page(services.page_enable(page=Page.objects.get(), actor="test"))


def delete() -> None:
    publication.remove_files(services.page_delete(page=Page.objects.get(), actor="test"))
