"""Which slugs a page may have, and what is made of a name."""

from __future__ import annotations

import pytest

from accounts.models import Account
from pages import slugs
from tests.callers import Caller
from tests.pages.rows import make_page


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
