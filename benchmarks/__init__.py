"""Benchmarks of the host, in one run: `python -m benchmarks [PART ...]`, or `make bench` for all parts.

Beside its peers:

- `call`: one interceptor call that makes one host call, beside `wasmtime.component` and Extism's Python SDK;
- `roundtrip`: a whole tool call through the router, beside an echo tool of MCP's Python SDK over stdio;
- `start`: the time a process takes to open the host, beside importing third-party packages alone.

Under load:

- `throughput`: tool calls a second of one caller, and of 64 callers of one and of 64 principals;
- `events`: events a second through one interceptor, of one, 64 and 1,000 principals;
- `lookup`: finding a topic's handlers among 10, 1,000 and 100,000 patterns;
- `mixed`: a tool call while none, one, two and four guests compute;
- `instances`: the memory and the time of each of 1,000 instances.

What is compared takes turns in every round, and what is reported is the median over the rounds. Extism and MCP are in the
dependency group `bench`; nothing else of the project needs them.
"""
