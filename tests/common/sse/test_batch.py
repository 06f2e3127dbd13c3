"""Concurrent queries are combined into one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from common.sse.batch import Batch


def test_concurrent_queries_are_one_query_and_fail_together() -> None:
    asked: list[list[str]] = []

    def load(keys: Sequence[str]) -> dict[str, int]:
        asked.append(sorted(keys))
        if "bad" in keys:
            raise ZeroDivisionError
        return {key: len(key) for key in keys if key != "absent"}

    async def run() -> None:
        batch = Batch(load)
        impatient = asyncio.ensure_future(batch.get("a"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await asyncio.gather(*map(batch.get, ["a", "bb", "absent", "a"])) == [1, 2, None, 1]
        found = await asyncio.gather(*map(batch.get, ["bad", "a"]), return_exceptions=True)
        assert [type(one) for one in found] == [ZeroDivisionError] * 2
        assert await batch.get("ccc") == 3

    asyncio.run(run())
    assert asked == [["a", "absent", "bb"], ["a", "bad"], ["ccc"]]
