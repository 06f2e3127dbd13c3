"""The MCP server `ws mcp`, an extra of the package: `pip install 'microvm[mcp]'`."""
