"""Tools that take their own arguments and no others, and say in a sentence what is wrong with a call."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import ConfigDict, ValidationError, create_model

from microvm.mcp_server.bounds import MOST_LINE, bounded_text


class StrictTool(Tool):
    """A misspelt argument would be left out without a word otherwise, and a default take its place."""

    def model_post_init(self, context: Any, /) -> None:
        lax = self.fn_metadata.arg_model
        config = ConfigDict(**{**lax.model_config, "extra": "forbid"})
        strict = create_model(lax.__name__, __base__=lax)
        strict.model_config = config
        strict.model_rebuild(force=True)
        self.fn_metadata.arg_model = strict
        self.parameters = strict.model_json_schema(by_alias=True)

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """As a tool, with problems of arguments as sentences."""
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(bounded_text(self._problems(error), MOST_LINE)[0]) from None
        return await super().run(arguments, context, convert_result)

    def _problems(self, error: ValidationError) -> str:
        names = ", ".join(self.parameters["properties"])
        said = []
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            place = ".".join(map(str, problem["loc"]))
            if problem["type"] == "missing":
                said.append(f"{place} is missing.")
            elif problem["type"] == "extra_forbidden":
                said.append(f"{self.name} has no argument {place}; it takes {names}.")
            else:
                said.append(f"{place}: {problem['msg']}.")
        return " ".join(said)
