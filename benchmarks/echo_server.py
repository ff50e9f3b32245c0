"""The echo tool of MCP's Python SDK, over stdio: its low-level server, which was faster than the one with decorators."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(_context: Any, _params: Any) -> Any:
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=SCHEMA)])


async def call_tool(_context: Any, params: Any) -> Any:
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])


async def serve() -> None:
    """Answer until standard input ends."""
    server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
