"""Topics that a client needs, without the modules of the host that they come from: those load the engine."""

from __future__ import annotations

REQUESTS = "astrid.v1.request."
APPROVAL = "astrid.v1.approval"
APPROVAL_ANSWERS = "astrid.v1.approval.response."
