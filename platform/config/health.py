"""`GET /healthz`: whether this process can serve. Needs no credential and shows nothing else."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from common.redis import redis_is_available


def healthz(request: HttpRequest) -> JsonResponse:
    """200 with `{"success": true}` while the database answers; `redis` whether Redis answers.

    Without Redis operations still run, with delay, so its outage does not make the check fail.
    """
    database, redis = _database_answers(), redis_is_available()
    body = {"success": database, "database": database, "redis": redis}
    return JsonResponse(body, status=200 if database else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True
