"""The echo tool of MCP's Python SDK, over stdio, written as its documentation writes tools."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer


async def echo(text: str) -> str:
    """Give the text back."""
    return text


if __name__ == "__main__":
    server = MCPServer("echo")
    server.add_tool(echo)
    server.run(transport="stdio")
