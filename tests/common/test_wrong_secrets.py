"""The wait of guessers that are refused, at streams."""

from __future__ import annotations

import asyncio

import pytest

from common import wrong_secrets
from common.attempts import too_many
from common.errors import RateLimited, Unauthorized
from common.wrong_secrets import RefusalWaits


def finished_soon(waits: RefusalWaits, errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which of these wait for nothing: the wait of the others never ends here."""
    monkeypatch.setattr(wrong_secrets, "REFUSAL_SECONDS", (3600.0, 7200.0))

    async def run() -> list[bool]:
        tasks = [asyncio.ensure_future(waits.wait_before(error)) for error in errors]
        for _ in range(5):
            await asyncio.sleep(0)
        done = [task.done() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    return asyncio.run(run())


def test_only_a_refused_guess_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [too_many(5), RateLimited(), Unauthorized(), ValueError()]
    assert finished_soon(RefusalWaits(), errors, monkeypatch) == [False, True, True, True]


def test_of_very_many_some_wait_and_the_others_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = RefusalWaits(most=3)
    for _ in range(2):  # the places are free again
        assert finished_soon(waits, [too_many(5)] * 5, monkeypatch) == [False] * 3 + [True] * 2
