"""Which account gets the next place."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from common.work.shares import Shares, in_turn, most_of_account


def test_an_account_has_as_many_places_as_it_leaves() -> None:
    shares, begun = Shares(28), Counter[str]()
    for account in "abcdef":
        while shares.has_place(account):
            shares.begin(account)
            begun[account] += 1
    assert begun == {"a": 14, "b": 7, "c": 4, "d": 2, "e": 1}
    assert shares.total == shares.places


def test_the_account_with_the_fewest_goes_first_and_of_equals_the_one_that_waits_for_longest() -> None:
    shares = Shares(8)
    assert [shares.next_account("ba"), shares.next_account("")] == ["a", None]
    for account in "abb":
        shares.begin(account)
    assert shares.next_account("abc") == "c"
    shares.begin("c")
    assert shares.next_account("ac") == "a", "it got its place before"
    shares.end("b")
    assert shares.of_account == {"a": 1, "b": 1, "c": 1}
    assert shares.next_account("abc") == "a"


@given(st.integers(1, 64), st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=200))
def test_no_account_has_more_than_it_leaves_and_a_new_one_finds_a_place(
    places: int, steps: list[tuple[str, bool]]
) -> None:
    shares = Shares(places)
    for account, is_end in steps:
        if is_end and shares.of_account[account]:
            shares.end(account)
        elif shares.has_place(account):
            shares.begin(account)
            own = shares.of_account[account]
            assert own <= most_of_account(shares.total - own, places)
            assert own <= (places + 1) // 2
        assert shares.total <= places
        assert shares.has_place("another") is (shares.total < places)


def test_rows_are_taken_in_turn_by_accounts_with_the_fewest_first() -> None:
    rows = [(number, "many") for number in range(3)] + [(8, "few"), (9, "few")]
    assert in_turn(rows, {}) == [0, 8, 1, 9, 2]
    assert in_turn(rows, {"many": 1}) == [8, 0, 9, 1, 2]
