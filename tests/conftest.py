"""Fixtures of all tests: accounts, callers, and a host with the fake driver in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dns.resolver
import httpx
import hypothesis
import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db import connection
from django.db.models import Model
from django.test import Client, TestCase

import outbound.names
from accounts.models import Account, Plan
from accounts.scopes import Scope, ScopeBinding
from accounts.services import account_create, credential_issue
from cdn.models import PlanLimits
from common.redis import redis_client
from credits.models import Rate
from tests.cached import invalidate_cached_values
from tests.callers import Caller
from tests.database_server import TEMPLATE, ensure_server, is_own
from tests.described import DescribedClient
from tests.marked_files import CAMPAIGNS, MACHINES, is_read, may_have
from tests.run_extent import leave_out_other_shares
from tests.world import World

if TYPE_CHECKING:
    from tests.vmbackend.hold_guests import Guests

MADE_BY_MIGRATIONS: tuple[type[Model], ...] = (Plan, Rate, PlanLimits)


def pytest_configure() -> None:
    """A run that is terminated ends its machines first, as with Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # An example takes as long as a busy host lets it.
    hypothesis.settings.register_profile("tests", deadline=None)
    hypothesis.settings.load_profile("tests")
    # Of a run in the background these are ignored, and would be by all that the tests start.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignored)


def _ignored(number: int, frame: object) -> None:
    """As SIG_IGN, but not inherited."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    skipped = not is_read(collection_path, config.getoption("markexpr"))
    return skipped or None  # False would overrule other hooks


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses marks that a run by marks would not find; leaves out campaigns of other shares."""
    leave_out_other_shares(items)
    for item in items:
        for marks in (MACHINES, CAMPAIGNS):
            if any(item.get_closest_marker(name) for name in marks) and not may_have(marks, item.path):
                alone = " or ".join(marks)
                raise pytest.UsageError(f"{item.nodeid}: a run of {alone} would not find it (tests/marked_files.py)")


@pytest.fixture(autouse=True)
def no_value_of_another_test() -> None:
    invalidate_cached_values()


@pytest.fixture(scope="session", autouse=True)
def one_reading_of_certificates() -> Iterator[None]:
    """Of all clients of a process: each reads the system's, 25 ms of a processor, and most are for a few requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_links_stay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """State folders of tests have long paths, for which instances make links in /run."""
    yield
    folder = tmp_path_factory.getbasetemp()
    for link in Path("/run").glob("mvm-*"):
        if link.is_symlink() and link.readlink().is_relative_to(folder):
            link.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def database_server() -> None:
    """PLATFORM_DATABASE_URL names a server that runs. Tests that use the database of pytest-django have it."""
    ensure_server()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None, database_server: None) -> None:
    """A copy of a migrated database, where the server has one: running all migrations takes 5 s of a processor."""
    if is_own():
        connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings: None) -> bool:
    """Databases that end with the server need not be removed."""
    return is_own()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """What empties the tables after a transactional test: on tables of a few rows, DELETE instead of TRUNCATE, and
    without reading the schema and making all permissions again each time, as content types and permissions stay. Plans
    and prices, which migrations made, are written again."""
    with django_db_blocker.unblock():
        made = {model: list(model._default_manager.all()) for model in MADE_BY_MIGRATIONS}

    def restore(*_: Any, **__: Any) -> None:
        for model, rows in made.items():
            model._default_manager.bulk_create(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", delete_rows)
        patch.setattr(flush, "emit_post_migrate_signal", restore)
        yield


def delete_rows(style: Any, connection: Any, **_: Any) -> list[str]:
    # A test that has lost its connection fails alone: those after it get another one.
    connection.close_if_unusable_or_obsolete()
    models = apps.get_models(include_auto_created=True)
    tables = {model._meta.db_table for model in models if model._meta.managed and not model._meta.proxy}
    tables -= {ContentType._meta.db_table, Permission._meta.db_table}
    rows = [f"DELETE FROM {connection.ops.quote_name(table)}" for table in sorted(tables)]
    # Neither foreign keys nor triggers, which would depend on an order: everything goes.
    return ["SET LOCAL session_replication_role = replica; " + "; ".join(rows)]


@pytest.fixture(autouse=True)
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that users give get no answer, at once: no test asks the name servers of the host that it runs on."""

    def silent() -> dns.resolver.Resolver:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(outbound.names, "host_resolver", silent)


@pytest.fixture
def new_account(db: None) -> Callable[..., Caller]:
    """Make an account; returns its caller with an account-scope credential."""

    return caller_make


def caller_make(name: str = "acme", plan: str = "pro") -> Caller:
    account, made = account_create(name=name, plan=plan)
    return Caller(Client(), account, made.credential.client_id, made.secret)


@pytest.fixture
def api(new_account: Callable[..., Caller]) -> Caller:
    """A caller with an account-scope credential of an account on the plan `pro`."""
    return new_account()


@pytest.fixture
def stranger(new_account: Callable[..., Caller]) -> Caller:
    """A caller of another account."""
    return new_account("stranger")


@pytest.fixture
def scoped() -> Callable[..., Caller]:
    """A caller of an account with a credential of another scope."""

    def make(caller: Caller, scope: Scope, **binding: str) -> Caller:
        made = credential_issue(account=caller.account, name=scope, scope=scope, binding=ScopeBinding(**binding))
        return Caller(Client(), caller.account, made.credential.client_id, made.secret)

    return make


@pytest.fixture
def staff(db: None) -> Client:
    """A client that is logged in to the admin. Without a password: hashing one takes a third of a second."""
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


@pytest.fixture
def committed_world(api: Caller) -> World:
    """An account with the rows that routes name, among them a workspace that failed; each answer must be documented.
    Also for transactional tests; takes a tenth of a second."""
    api.client = DescribedClient()
    return World.of(api)


@pytest.fixture(scope="module")
def world_of_module(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """The rows of `world`, in a transaction that lasts as long as the module: each test has another inside of it."""
    here = [item for item in request.session.items if item.path == request.path]
    if any(is_transactional(item) for item in here):
        raise pytest.UsageError(f"{request.path.name} has transactional tests: use `committed_world`.")

    class Rows(TestCase):
        made: World

        @classmethod
        def setUpTestData(cls) -> None:
            cls.made = World.of(caller_make())

    with django_db_blocker.unblock():
        Rows.setUpClass()
    yield Rows.made
    with django_db_blocker.unblock():
        Rows.tearDownClass()
        Rows.doClassCleanups()


def is_transactional(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("django_db")
    fixtures = {"transactional_db", "live_server"} & set(getattr(item, "fixturenames", ()))
    return bool(fixtures or (marker and marker.kwargs.get("transaction")))


@pytest.fixture
def world(world_of_module: World, db: None) -> World:
    """As `committed_world`, of rows that are made once for a module. What a test changes ends with the test."""
    redis_client().flushdb()  # it counts the account's requests
    made = deepcopy(world_of_module)
    made.owner.client = DescribedClient()
    return made


@pytest.fixture
def vmhost(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A host in this process: the fake driver, and operations carried out in threads as vmhost does."""
    from tests.fakehost import FakeHost

    host = FakeHost(settings.STATE, monkeypatch)
    host.start()
    yield host
    host.stop()


@pytest.fixture
def account_of() -> Callable[[str], Account]:
    return lambda name: Account.objects.get(name=name)


@pytest.fixture(scope="session")
def hold_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit's program, for this host."""
    from tests.vmbackend.hold_factory import compile_hold

    target = tmp_path_factory.mktemp("hold") / "guest"
    compile_hold(target)
    return target


@pytest.fixture
def guests(hold_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guests]:
    """Machines of the fake driver that have tasks."""
    from tests.vmbackend.hold_guests import Guests
    from vmbackend.backend import guest_pool
    from vmbackend.fake.guest import FakeGuestSession

    made = Guests(hold_program, tmp_path / "holds")
    monkeypatch.setattr(FakeGuestSession, "hold_of", staticmethod(made.opener))
    yield made
    guest_pool().close()
    made.close()
