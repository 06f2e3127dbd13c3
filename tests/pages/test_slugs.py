"""Which slugs a page may have, and what is made of a name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Account
from pages import slugs
from pages.models import Page, PageDeploy
from pages.states import DeployState
from tests.callers import Caller
from tests.pages.rows import make_page
from tests.world import assert_error


@pytest.mark.parametrize("slug", ["abc", "a-b", "my-site-2", "0ab", "x" * 50])
def test_a_label_of_a_host_name_is_a_slug(slug: str) -> None:
    assert slugs.is_slug(slug)


@pytest.mark.parametrize(
    "slug",
    [
        *("", "ab", "x" * 51, "-abc", "abc-", "a--b", "xn--abc", "Abc", "a_b", "a.b", "a b", "äbc", "abc\n", "a\0bc"),
        # Names of the platform's own, of a sandbox by host, of a public port with and without a slug, of a release.
        *("www", "api", "sbx-2kq7abcdabcdabcd", "abcdefghijklmnopqrst", "web-abcdefghijklmnopqrst", "site--r3"),
    ],
)
def test_other_names_are_no_slugs(slug: str) -> None:
    assert not slugs.is_slug(slug)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("My Site!", "my-site"),
        ("a_b", "a-b"),
        ("a -- b", "a-b"),
        ("www", "www-"),
        ("日本", "page-"),
        ("x" * 200, "x" * 43),
        ("abcdefghijklmnopqrst", "abcdefghijklmnopqrst-"),
        ("sbx-one", "page-"),
    ],
)
def test_a_slug_is_made_of_any_name(name: str, beginning: str) -> None:
    made = slugs.free_slug(name)
    assert made.startswith(beginning)
    assert slugs.is_slug(made)


@pytest.mark.django_db
def test_a_slug_that_is_taken_gets_a_suffix(api: Caller, stranger: Caller) -> None:
    taken: Account = stranger.account
    make_page(taken, slug="my-site")
    assert slugs.free_slug("My site").startswith("my-site-")


CHECK = "/domain/check-slug"


@pytest.mark.django_db
def test_a_slug_is_checked_before_it_is_wanted(api: Caller, stranger: Caller) -> None:
    make_page(stranger.account, slug="my-site")
    for slug, is_free in (("my-site", False), ("my-site-2", True)):
        answer = api.post(CHECK, {"slug": slug})
        url = f"http://{slug}.pages.localhost:8000"
        assert (answer.status_code, answer.json()) == (200, {"success": True, "available": is_free, "url": url})
        assert api.post(CHECK, {"slug": slug, "domain": "pages.localhost"}).json() == answer.json()


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ["", "www", "A-b", "site--r3", 5, None])
def test_a_slug_that_no_page_may_have_is_refused_by_the_check(api: Caller, slug: object) -> None:
    answer = api.post(CHECK, {"slug": slug})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"slug"}
    assert set(api.post(CHECK, {"slug": "good", "domain": "example.org"}).json()["details"]) == {"domain"}


@pytest.mark.django_db
def test_the_slug_of_a_creation_that_failed_is_free_for_its_account(api: Caller, stranger: Caller) -> None:
    page = make_page(api.account, slug="my-site", release=None)
    now = timezone.now()
    times = {"state": DeployState.FAILED, "finished_at": now - timedelta(seconds=20), "deadline_at": now}
    PageDeploy.objects.create(page=page, **times)
    Page.objects.filter(pk=page.pk).update(created_at=now - timedelta(seconds=30))
    assert [caller.post(CHECK, {"slug": "my-site"}).json()["available"] for caller in (api, stranger)] == [True, False]
