"""Namespaces as far as other apps use them: the default one, what a credential reaches, what a suspension refuses."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import DomainError, Forbidden, NamespaceSuspended, NotFound, QuotaExceeded
from namespaces import selectors
from namespaces.models import Namespace, Status
from tests.callers import Caller

pytestmark = pytest.mark.django_db


def test_every_account_has_one_default_namespace(api: Caller) -> None:
    only = Namespace.objects.get(account=api.account)
    assert (only.slug, only.is_default, only.status) == ("default", True, Status.ACTIVE)
    assert only.pk.startswith("ns_")
    with pytest.raises(IntegrityError), transaction.atomic():
        Namespace.objects.create(account=api.account, name="x", slug="second", is_default=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        Namespace.objects.create(account=api.account, name="x", slug="default")


def test_slugs_are_the_accounts(api: Caller, stranger: Caller) -> None:
    Namespace.objects.create(account=stranger.account, name="Theirs", slug="theirs")
    Namespace.objects.create(account=api.account, name="Mine", slug="theirs")
    Namespace.objects.create(account=stranger.account, name="Alone", slug="alone")
    assert selectors.by_slug(api.account, "theirs").account == api.account
    with pytest.raises(NotFound):
        selectors.by_slug(api.account, "alone")


def test_a_namespace_is_found_by_id_and_slug_as_far_as_the_actor_reaches(api: Caller, stranger: Caller) -> None:
    mine = Namespace.objects.create(account=api.account, name="Mine", slug="mine")
    owner = Actor(api.account, Scope.ACCOUNT, "cred", "label")
    inside = Actor(api.account, Scope.NAMESPACE, "cred", "label", namespace_id=mine.pk, namespace_slug="mine")
    other = Actor(stranger.account, Scope.ACCOUNT, "cred", "label")
    assert [selectors.get_namespace(actor, name) for actor in (owner, inside) for name in (mine.pk, "mine")] == [
        mine
    ] * 4
    assert selectors.get_namespace(owner, "default").slug == "default"
    for actor, name in ((inside, "default"), (other, "mine"), (other, mine.pk), (owner, "none")):
        with pytest.raises(NotFound):
            selectors.get_namespace(actor, name)
    assert list(selectors.visible_namespaces(inside)) == [mine]


def test_where_a_new_resource_goes(api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    free = Actor(api.account, Scope.ACCOUNT, "cred", "label")
    bound = Actor(api.account, Scope.NAMESPACE, "cred", "label", namespace_id=other.pk, namespace_slug="other")
    assert selectors.for_create(free, None).slug == "default"
    assert selectors.for_create(free, "other") == other
    assert selectors.for_create(bound, None) == other
    assert selectors.for_create(bound, "other") == other
    with pytest.raises(Forbidden):
        selectors.for_create(bound, "default")
    with pytest.raises(NotFound):
        selectors.for_create(free, "missing")
    other.delete()
    with pytest.raises(NotFound):
        selectors.for_create(bound, None)


@pytest.mark.parametrize(
    ("by_hand", "by_quota", "raised"),
    [(True, False, NamespaceSuspended), (False, True, QuotaExceeded), (True, True, NamespaceSuspended)],
)
def test_a_suspension_states_its_reason(by_hand: bool, by_quota: bool, raised: type[DomainError]) -> None:
    suspended = Namespace(slug="x", status=Status.SUSPENDED, suspended_by_hand=by_hand, suspended_by_quota=by_quota)
    with pytest.raises(raised):
        selectors.require_open(suspended)


def test_an_open_namespace_refuses_nothing(api: Caller) -> None:
    selectors.require_open(Namespace(slug="x"))
