"""Connections of the pool that the server has ended, as at its restart: no query meets them. PostgreSQL alone."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from config.postgresql.base import is_alive
from tests.commands.conftest import short_folder

pytestmark = [
    pytest.mark.django_db(transaction=True),
]
SERVER_ENDS = "SELECT pg_terminate_backend(%s)"


@pytest.fixture
def others() -> Iterator[list[BaseDatabaseWrapper]]:
    """Connections as other threads have them: of one pool."""
    # This test's own one is in use before, so that it is none of theirs.
    connection.ensure_connection()
    found = [connection.copy() for _ in range(5)]
    yield found
    for other in found:
        other.close()


def query(other: BaseDatabaseWrapper) -> int:
    """The number of the server's process for this connection, which goes back to the pool."""
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (number,) = cursor.fetchone()
    return int(number)


def end_all(numbers: list[int]) -> None:
    """As a restart of the server does, but for this test's own connection."""
    with connection.cursor() as cursor:
        for number in numbers:
            cursor.execute(SERVER_ENDS, [number])
        ended = time.monotonic() + 120
        while time.monotonic() < ended:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [numbers])
            if cursor.fetchone() == (0,):
                return
            time.sleep(0.01)
    pytest.fail("the server's processes did not end")


def test_the_first_queries_after_a_restart_of_the_server_are_answered(others: list[BaseDatabaseWrapper]) -> None:
    before = [query(other) for other in others]  # all at once, so none shares a connection
    for other in others:
        other.close()
    end_all(before)
    after = [query(other) for other in others]
    assert not set(before) & set(after)


@contextmanager
def late_end() -> Iterator[str]:
    """A folder with a socket to the server that passes its last words on; the end itself comes with the next query."""
    server = socket.socket(socket.AF_UNIX)
    settings = connection.settings_dict
    server.connect(f"{settings['HOST']}/.s.PGSQL.{settings['PORT'] or 5432}")
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listener, server:
        listener.bind(str(folder / ".s.PGSQL.5432"))
        listener.listen(1)

        has_said_why = threading.Event()

        def answers(client: socket.socket) -> None:
            while data := server.recv(65_536):
                if b"FATAL" in data:
                    has_said_why.set()
                client.sendall(data)

        def questions() -> None:
            client = listener.accept()[0]
            with client:
                reader = threading.Thread(target=answers, args=[client])
                reader.start()
                while (data := client.recv(65_536)) and not has_said_why.is_set():
                    server.sendall(data)
                server.shutdown(socket.SHUT_RDWR)
                reader.join()

        thread = threading.Thread(target=questions)
        thread.start()
        yield str(folder)
        thread.join(30)
        assert not thread.is_alive()


def test_a_connection_is_dead_once_the_server_said_why_it_ends_it() -> None:
    with late_end() as folder:
        user, name = (connection.settings_dict[key] for key in ("USER", "NAME"))
        ending = psycopg.connect(host=folder, port=5432, user=user, dbname=name, autocommit=True)
        assert is_alive(ending)
        end_all([ending.info.backend_pid])
        readable = select.poll()
        readable.register(ending.fileno(), select.POLLIN)
        assert readable.poll(10_000), "the server said why"
        assert not is_alive(ending)
        ending.close()


def test_what_a_server_says_unasked_ends_no_connection(others: list[BaseDatabaseWrapper]) -> None:
    """Notices, or parameters that a reload of its configuration changed."""
    other = others[0]
    number = query(other)
    with other.cursor() as cursor:
        cursor.execute("LISTEN unasked")
    with connection.cursor() as cursor:
        cursor.execute("NOTIFY unasked")
    readable = select.poll()
    readable.register(other.connection.fileno(), select.POLLIN)
    assert readable.poll(10_000), "it has something to say"
    assert is_alive(other.connection)
    assert query(other) == number
