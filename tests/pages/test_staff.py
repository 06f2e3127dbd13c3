"""Pages in the admin: through the services, with an audit entry, and with their files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from accounts.services import account_switch
from namespaces.models import NamespaceActivity
from pages import publication, services
from pages.models import Page, PageEvent
from pages.releases.store import PageStore
from tests.pages.conftest import Site
from tests.pages.stores import left_files
from tests.staff.pages import confirm

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/pages/page/"


def test_staff_disable_and_enable_pages(staff: Client, site: Site, served: Callable[[str], str | None]) -> None:
    site.create(slug="abc")
    page = Page.objects.get()
    for action, content in (("disable", None), ("enable", "one")):
        confirm(staff, "pages/page", action, page.pk, reason="why")
        assert served("abc") == content
    events = PageEvent.objects.filter(actor="staff root").order_by("pk")
    assert [event.action for event in events] == ["disabled", "enabled"]


@pytest.mark.parametrize("before", ["active", "disabled"])
def test_a_page_that_staff_disabled_stays_so_until_staff_enable_it(
    staff: Client, site: Site, served: Callable[[str], str | None], before: str
) -> None:
    site.create(slug="abc")
    page = Page.objects.get()
    if before == "disabled":
        assert site.api.post("/pages/abc/disable").json()["page"]["disabled_reason"] is None
    why = "It imitates a bank."
    confirm(staff, "pages/page", "disable", page.pk, reason=why)
    refused = site.api.post("/pages/abc/enable")
    assert (refused.status_code, refused.json()["code"]) == (403, "page_disabled")
    assert refused.json()["details"] == {"reason": why}
    # Nor by another way.
    site.write(index_html="two")
    assert site.deploy("abc").status_code == 200
    for answer in (site.api.post("/pages/abc/disable"), site.api.put("/pages/abc", {"slug": "xyz"})):
        shown = answer.json()["page"]
        assert (shown["status"], shown["disabled_reason"]) == ("disabled", why)
    assert (served("abc"), served("xyz")) == (None, None)
    recorded = NamespaceActivity.objects.get(action="staff_action")
    assert (recorded.namespace_id, recorded.detail) == (page.namespace_id, f"Disable by staff: {why}")
    confirm(staff, "pages/page", "enable", page.pk)
    assert served("xyz") == "two"
    assert site.api.get("/pages/xyz").json()["page"]["disabled_reason"] is None
    assert site.api.post("/pages/xyz/disable").status_code == 200
    assert site.api.post("/pages/xyz/enable").status_code == 200


def test_pages_of_an_account_that_staff_deactivate_are_not_served(
    staff: Client, site: Site, served: Callable[[str], str | None]
) -> None:
    site.create(slug="abc")
    page = Page.objects.get()
    confirm(staff, "accounts/account", "deactivate", page.account_id, reason="why")
    assert served("abc") is None
    # What changes while it is inactive is not served either.
    publication.publish_page(services.page_update(page=page, slug="xyz", actor="t"))
    assert (served("abc"), served("xyz")) == (None, None)
    assert publication.files_reconcile() == []
    confirm(staff, "accounts/account", "activate", page.account_id, reason="why")
    assert (served("abc"), served("xyz")) == (None, "one")
    page.refresh_from_db()
    assert (page.status, page.is_stale) == ("active", False)


@pytest.mark.parametrize("ends", ["disable", "deactivate"])
def test_a_page_whose_release_is_damaged_is_not_served_where_staff_say_so(
    staff: Client, site: Site, store: PageStore, served: Callable[[str], str | None], ends: str
) -> None:
    site.create(slug="abc")
    page = Page.objects.get()
    # As after a restore of an older backup of files: the row names a release that is not there.
    Page.objects.filter(pk=page.pk).update(release=7)
    assert served("abc") == "one"
    if ends == "disable":
        confirm(staff, "pages/page", "disable", page.pk, reason="why")
    else:
        confirm(staff, "accounts/account", "deactivate", page.account_id, reason="why")
    assert served("abc") is None
    page.refresh_from_db()
    assert (page.is_stale, page.published_slug) == (False, "")
    # It comes back with its files, and not before.
    if ends == "disable":
        confirm(staff, "pages/page", "enable", page.pk)
    else:
        confirm(staff, "accounts/account", "activate", page.account_id, reason="why")
    assert served("abc") is None
    Page.objects.filter(pk=page.pk).update(release=1)
    assert publication.publications_continue() == 1
    assert served("abc") == "one"


def test_a_process_that_dies_after_the_switch_leaves_pages_to_the_worker(
    site: Site, served: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(slug="abc")
    with monkeypatch.context() as patched:
        patched.setattr(publication, "publish_page", lambda page: False)
        account_switch(Page.objects.get().account, is_active=False)
        assert served("abc") == "one"
    assert publication.publications_continue() == 1
    assert served("abc") is None


def test_staff_roll_a_page_back_to_a_kept_release(
    staff: Client, site: Site, served: Callable[[str], str | None]
) -> None:
    site.create(slug="abc")
    site.write(index_html="two")
    site.deploy("abc")
    page = Page.objects.get()
    assert served("abc") == "two"
    for number in ("99", "", "-1", "x"):
        confirm(staff, "pages/page", "roll_back", page.pk, number=number, reason="why")
    assert served("abc") == "two"
    confirm(staff, "pages/page", "roll_back", page.pk, number="1", reason="Broken.")
    assert served("abc") == "one"
    assert PageEvent.objects.filter(action="rolled_back", actor="staff root").count() == 1


def test_staff_delete_a_page_with_its_files(staff: Client, site: Site, store: PageStore) -> None:
    site.create(slug="abc")
    page = Page.objects.get()
    confirm(staff, "pages/page", "remove", page.pk, reason="why")
    assert not Page.objects.exists()
    assert left_files(store) == []
    assert PageEvent.objects.filter(page_id=page.pk, action="deleted", actor="staff root").exists()


def test_staff_see_a_page_with_its_deploys_and_releases(staff: Client, site: Site) -> None:
    site.create(slug="abc")
    for model in ("page", "pagerelease", "pagedeploy", "pageevent"):
        shown = staff.get(f"/admin/pages/{model}/")
        assert shown.status_code == 200
    assert staff.get(f"{LIST}{Page.objects.get().pk}/change/").status_code == 200
