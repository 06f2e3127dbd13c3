"""A metering record with its price and the time at which it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from credits.prices import PriceTable

# Of a MeterRecord, for `read_records`.
COLUMNS = (
    "id", "tick", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes",
    "metered__account_id", "metered__namespace_id", "metered__workspace_id",
)  # fmt: skip


@dataclass(slots=True)
class ChargedRecord:
    """`counted_at`: microseconds since 1970; later than the tick for one that was charged late."""

    id: int
    tick: int
    amounts: tuple[int, int, int, int]  # cpu_time_ns, memory_mb_ms, disk_bytes, network_bytes
    account_id: str
    namespace_id: str
    workspace_id: str
    credits: Decimal
    counted_at: int


def read_records(rows: Iterable[tuple[Any, ...]], prices: PriceTable) -> Iterator[ChargedRecord]:
    """Rows of COLUMNS."""
    for number, tick, cpu, memory, disk, network, account, namespace, workspace in rows:
        amounts = (cpu, memory, disk, network)
        yield ChargedRecord(number, tick, amounts, account, namespace, workspace, prices.price(tick, *amounts), tick)
