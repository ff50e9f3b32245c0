"""Benchmarks of the host beside its peers, in one run: `python -m benchmarks [call] [roundtrip] [start]`, or `make bench`.

- `call`: one interceptor call that makes one host call, beside `wasmtime.component` and Extism's Python SDK;
- `roundtrip`: a whole tool call through the router, beside an echo tool of MCP's Python SDK over stdio;
- `start`: the time a process takes to open the host, beside importing third-party packages alone.

Peers take turns in every round, and what is reported is the median over the rounds. Extism and MCP are in the dependency
group `bench`; nothing else of the project needs them.
"""
