"""The asynchronous methods of each group, as text."""

from __future__ import annotations

import keyword
import re
import textwrap

from clients.python.generator.description import MissingInDescription, Operation
from clients.python.generator.table import Method, MethodGroup
from clients.python.generator.types import Types

# Parameter of a list -> how its pages follow each other (microvm.paging).
PAGING = {"page": "pages", "offset": "offsets", "cursor": "cursors"}
_HEAD = '"""{text}\n\nWritten by `make client`.\n"""\n\nfrom __future__ import annotations\n\n'


def module_text(group: MethodGroup, types: Types) -> str:
    """The module of a group's class, to be formatted."""
    methods = "\n".join(_Writer(group, method, types).text for method in group.methods if "by_hand" not in method.flags)
    imports = [types.imports(methods, "")]
    if "AsyncIterator[" in methods:
        imports.append("from collections.abc import AsyncIterator")
    if "builtins." in methods:
        imports.append("import builtins")
    if "quoted(" in methods:
        imports.append("from microvm.addresses import quoted")
    imports.append(f"from microvm.aio.group import AsyncGroup{', LONG' if 'LONG' in methods else ''}")
    body = f'class Async{group.class_name}(AsyncGroup):\n    """{group.text}"""\n\n{methods}'
    return f"{_HEAD.format(text=group.text)}{chr(10).join(imports)}\n\n\n{body}"


class _Writer:
    """Writes one method."""

    def __init__(self, group: MethodGroup, method: Method, types: Types) -> None:
        self.method, self.types = method, types
        self.operation: Operation = types.description.operation(method)
        self.names_a_list = any(other.name == "list" for other in group.methods)
        self.is_iterator = method.result.startswith("*")
        self.result = method.result.removeprefix("*")
        names = {parameter["name"] for parameter in self.operation.query}
        self.paging = next((PAGING[name] for name in PAGING if name in names), "") if self.is_iterator else ""
        if self.is_iterator and not self.paging:
            raise MissingInDescription(f"{method.verb} {method.path} has no pages.")

    @property
    def text(self) -> str:
        returned = self._returned()
        kind = "def" if self.is_iterator else "async def"
        lines = [f"{kind} {self.method.name}({self._parameters()}) -> {returned}:", self._docstring(), self._call()]
        if returned != "None" and not self.is_iterator:
            lines.append("return answer")
        head, *inner = lines
        return textwrap.indent(head + "\n" + textwrap.indent("\n".join(inner), "    ") + "\n", "    ")

    def _returned(self) -> str:
        if self.result == "none":
            return "None"
        schema = self.operation.answer
        if self.result != "-":
            schema = self.types.description.part(schema, self.result)
        written = self.types.written(schema)
        if self.is_iterator:
            return f"AsyncIterator[{written.removeprefix('list[').removesuffix(']')}]"
        return re.sub(r"\blist\[", "builtins.list[", written) if self.names_a_list else written

    def _query(self) -> dict[str, tuple[str, str]]:
        """Name in Python -> name in the query, and the parameter's text."""
        left_out = {"page", "offset", "cursor", "limit"} if self.is_iterator else set()
        found = {}
        for parameter in sorted(self.operation.query, key=lambda each: not each.get("required")):
            name = parameter["name"]
            if name not in left_out:
                python = f"{name}_" if keyword.iskeyword(name) else re.sub(r"([A-Z])", r"_\1", name).lower()
                written = self.types.written(parameter["schema"], requested=True)
                required = parameter.get("required")
                found[python] = (name, f"{python}: {written}" + ("" if required else " | None = None"))
        return found

    def _parameters(self) -> str:
        kinds = [self.types.written(schema) for schema in self.operation.path_types]
        placed = self.method.placeholders
        kinds = kinds[-len(placed) :] if placed else []
        parts = ["self", *(f"{name}: {kind}" for name, kind in zip(placed, kinds, strict=True))]
        named = [text for _, text in self._query().values()]
        named += [f"{self.method.bearer}: str"] if self.method.bearer else []
        named += [f"page_size: int = {self._page_size()}"] if self.is_iterator else []
        parts += ["*", *named] if named else []
        if self._has_body():
            parts.append(f"**body: Unpack[{self.types.written(self.operation.body)}]")
        written = ", ".join(parts)
        return re.sub(r"\blist\[", "builtins.list[", written) if self.names_a_list else written

    def _page_size(self) -> int:
        limits = [each["schema"] for each in self.operation.query if each["name"] == "limit"]
        return int(limits[0].get("maximum", 1000))

    def _has_body(self) -> bool:
        return bool(self.operation.body)

    def _call(self) -> str:
        path = re.sub(r"{(\w+)}", r"{quoted(\1)}", self.method.path.removeprefix("{url}").removeprefix("{runtime}"))
        path = f'f"{path}"' if "{" in path else f'"{path}"'
        query = ", ".join(f'"{name}": {python}' for python, (name, _) in self._query().items())
        if self.is_iterator:
            return f'return self._{self.paging}({path}, "{self.result}", {{{query}}}, page_size)'
        is_removal = self.method.verb == "DELETE" and self.result == "none"
        arguments = [path] if is_removal else [f'"{self.method.verb}"', path]
        arguments += [f"query={{{query}}}"] if query else []
        arguments += ["body=body"] if self._has_body() else []
        arguments += [f'part="{self.result}"'] if self.result not in ("-", "none") else []
        arguments += ["timeout=LONG"] if "long" in self.method.flags else []
        arguments += ["again=True"] if "again" in self.method.flags else []
        arguments += ["keyed=True"] if "keyed" in self.method.flags else []
        arguments += [f"bearer={self.method.bearer}"] if self.method.bearer else []
        called = f"await self._{'delete' if is_removal else 'call'}({', '.join(arguments)})"
        return called if self.result == "none" else f"answer: {self._returned()} = {called}"

    def _docstring(self) -> str:
        first = " ".join(self.operation.text.split("\n\n")[0].split())
        lines = textwrap.wrap(first, 105)
        return f'"""{lines[0]}"""' if len(lines) == 1 else '"""' + "\n".join(lines) + '\n"""'
