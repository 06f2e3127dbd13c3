"""The table of the client's methods, `methods.txt`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).parent / "methods.txt"
_GROUP = re.compile(r"\[(?P<name>\w+)\] (?P<class_name>\w+): (?P<text>.+)")


@dataclass(frozen=True)
class Method:
    """One line of the table. `result` and `flags` as its head explains them."""

    name: str
    verb: str
    path: str
    result: str
    flags: frozenset[str]

    @property
    def bearer(self) -> str:
        """The name of the parameter with a credential of its own; "" where it has none."""
        return next((flag.removeprefix("bearer=") for flag in self.flags if flag.startswith("bearer=")), "")

    @property
    def left_out(self) -> frozenset[str]:
        """Fields of the body that callers do not give."""
        return frozenset(flag.removeprefix("without=") for flag in self.flags if flag.startswith("without="))

    @property
    def placeholders(self) -> list[str]:
        """The names of the path's parameters, but for the address of a sandbox or a runtime."""
        return [name for name in re.findall(r"{(\w+)}", self.path) if name not in ("url", "runtime")]

    @property
    def shape(self) -> str:
        """The path without names of parameters, to find it in the API's description."""
        return re.sub(r"{\w+}", "{}", self.path.replace("{url}", "/s/{}").replace("{runtime}", "/r"))


@dataclass
class MethodGroup:
    """Methods of one class, in one module with the group's name."""

    name: str
    class_name: str
    text: str
    methods: list[Method] = field(default_factory=list)


def read_table(text: str | None = None) -> list[MethodGroup]:
    """The groups in the table's order. Raises ValueError for a line of another form."""
    groups: list[MethodGroup] = []
    for line in (TABLE.read_text() if text is None else text).splitlines():
        if found := _GROUP.fullmatch(line):
            groups.append(MethodGroup(found["name"], found["class_name"], found["text"]))
        elif line and not line.startswith("#"):
            groups[-1].methods.append(_method(line))
    return groups


def _method(line: str) -> Method:
    name, verb, path, result, *flags = line.split()
    return Method(name, verb, path, result, frozenset(flags))
