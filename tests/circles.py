"""Circles in a graph of what uses what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (strongly connected components of more than one node)."""
    reached = {node: _reachable(graph, node) for node in graph}
    found = {frozenset([node, *(other for other in reached[node] if node in reached[other])]) for node in graph}
    return sorted(sorted(group) for group in found if len(group) > 1)


def _reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen: set[str] = set()
    pending = list(graph[start])
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(graph[node])
    return seen
