"""What stands in an event: JSON, read as the tagged `IpcPayload` union, and what a guest receives of it.

A JSON object whose `type` is a known tag and whose fields fit is typed: it is written anew, `type` first, with defaults
filled in, and without null options and fields that are not declared. Everything else is custom and passes as it is. A known
tag with fields that do not fit is no error: the whole value is custom. `{"type":"custom","data":X}` is delivered as X, and a
`raw_json` object without its `type`. Text that is not JSON, or nests too deep, is a `PayloadError`.
"""

from __future__ import annotations

from astrid_host.payloads.envelope import NIL_SOURCE, IpcMessage, decode_frame, encode_frame, source_id
from astrid_host.payloads.kinds import ToolCallResult, ToolCancelRequest, ToolExecuteRequest, ToolExecuteResult
from astrid_host.payloads.parsing import (
    DEPTH,
    PAYLOAD_BYTES,
    Payload,
    RawJson,
    canonical,
    from_value,
    parse,
    typed,
    written,
)

__all__ = [
    "DEPTH",
    "NIL_SOURCE",
    "PAYLOAD_BYTES",
    "IpcMessage",
    "Payload",
    "RawJson",
    "ToolCallResult",
    "ToolCancelRequest",
    "ToolExecuteRequest",
    "ToolExecuteResult",
    "canonical",
    "decode_frame",
    "encode_frame",
    "from_value",
    "parse",
    "source_id",
    "typed",
    "written",
]
