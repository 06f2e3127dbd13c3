"""A database whose disk is full, as the connection of the test sees it: with the database's own error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def full_database(*tables: str) -> Iterator[None]:
    """Within the block each write to `tables` reports what the server reports where a file cannot be extended."""
    _fill(tables)
    try:
        yield
    finally:
        _free(tables)


def _fill(tables: tuple[str, ...]) -> None:
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


def _free(tables: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DROP TRIGGER full_disk ON {table}")
        cursor.execute("DROP FUNCTION refuse_full_disk")
