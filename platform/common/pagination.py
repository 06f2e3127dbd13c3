"""`page` and `limit` of lists."""

from __future__ import annotations

from rest_framework import serializers

MAX_PAGE = 1_000_000


class PageQuery(serializers.Serializer):
    """Query of a paged list: `page` from 1, `limit` 1-100, default 20. Out of range is a validation_error."""

    page = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=1)
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)


def bounds(page: int, limit: int) -> slice:
    """The rows of a page, as a slice for a queryset."""
    return slice((page - 1) * limit, page * limit)
