"""What clients do that is announced to the webhook of their account."""

from __future__ import annotations

from tests.chaos.ledger import Fact, Tracked
from tests.chaos.session import Session


def send_test_event(session: Session, tracked: Tracked) -> None:
    webhook = session.ledger.webhooks[session.word]
    answer = session.call("test webhook", "POST", f"/webhooks/{webhook}/test")
    if answer.is_done:
        session.ledger.acknowledged_events.add(answer.body["delivery"]["event_id"])


def suspend_namespace(session: Session, tracked: Tracked) -> None:
    """A namespace of its own for each time, so that a change that was not answered leaves no doubt about later ones."""
    slug = session.token()
    made = session.call("make namespace", "POST", "/namespaces", json={"name": slug, "slug": slug})
    done = made.is_done and _announced(session, slug, "suspend", "namespace.suspended")
    if done:
        _announced(session, slug, "activate", "namespace.restored")
    session.call("delete namespace", "DELETE", f"/namespaces/{slug}")


def _announced(session: Session, slug: str, what: str, event: str) -> bool:
    fact = Fact(session.word, event, slug)
    session.ledger.asked_facts.add(fact)
    answer = session.call(f"{what} namespace", "POST", f"/namespaces/{slug}/{what}")
    if answer.is_done:
        session.ledger.acknowledged_facts.add(fact)
    return answer.is_done
