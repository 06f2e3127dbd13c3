"""A database whose disk is full, as the connection of the test sees it: with the database's own error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection

_UNLIMITED_PAGES = 1073741823


@contextmanager
def full_database(*tables: str) -> Iterator[None]:
    """Within the block nothing can be stored: on SQLite no page is left, on PostgreSQL each write to `tables` reports
    what the server reports where a file cannot be extended."""
    fill, free = (_fill_sqlite, _free_sqlite) if connection.vendor == "sqlite" else (_fill_postgres, _free_postgres)
    fill(tables)
    try:
        yield
    finally:
        free(tables)


def _fill_sqlite(tables: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filling (content BLOB)")
        cursor.execute("PRAGMA page_count")
        cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")
        for size in (1 << 16, 1 << 12, 1 << 8):
            try:
                while True:
                    cursor.execute("INSERT INTO filling VALUES (zeroblob(%s))", [size])
            except OperationalError:
                continue


def _free_sqlite(tables: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA max_page_count = {_UNLIMITED_PAGES}")
        cursor.execute("DROP TABLE filling")


def _fill_postgres(tables: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE FUNCTION refuse_full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"""
        )
        for table in tables:
            cursor.execute(
                f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON {table} "
                "EXECUTE FUNCTION refuse_full_disk()"
            )


def _free_postgres(tables: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DROP TRIGGER full_disk ON {table}")
        cursor.execute("DROP FUNCTION refuse_full_disk")
