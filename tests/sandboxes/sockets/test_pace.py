"""Messages of a sandbox: as many at once as a client needs, and no more in the long run than the loop has time for."""

from __future__ import annotations

from workspaces.data_plane.sockets.pace import A_SECOND, SAVED, MessagePace


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_messages_that_come_at_once_after_a_pause_wait_only_beyond_what_was_saved() -> None:
    clock = Clock()
    pace = MessagePace(clock)
    assert [pace.next_wait() for _ in range(SAVED)] == [0.0] * SAVED
    assert pace.next_wait() == 1 / A_SECOND
    clock.now = 3600.0
    assert [pace.next_wait() for _ in range(SAVED)] == [0.0] * SAVED
    assert pace.next_wait() > 0


def test_eight_sockets_that_never_pause_are_served_at_the_rate_of_one() -> None:
    clock = Clock()
    pace = MessagePace(clock)
    due = [0.0] * 8
    served = 0
    while (at := min(due)) < 60:
        clock.now = at
        due[due.index(at)] = at + pace.next_wait()
        served += 1
    assert served <= SAVED + 60 * A_SECOND + 8
