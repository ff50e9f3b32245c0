"""What a guest learns by asking the kernel: of its own principal, and nothing of the host's process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import Guest, capsule, next_of

from astrid_host import Host, open_host

ASK = '{"type":"raw_json","method":"%s"}'


async def told(host: Host, principal: str) -> Any:
    async with host.subscribe("k.said") as events:
        host.publish("k.go", {}, principal=principal)
        return (await next_of(events)).payload["data"]


@pytest.mark.parametrize("principal", ["mallory", "default"])
@pytest.mark.parametrize(
    "method", ["GetStatus", "ListCapsules", "GetCommands", "GetCapsuleMetadata", "GetAgentReadiness"]
)
@pytest.mark.parametrize("uplink", [False, True])
async def test_a_guest_is_told_of_its_own_principal_alone(
    method: str, principal: str, uplink: bool, tmp_path: Path
) -> None:
    guest = Guest()
    ask = guest.when("go", guest.say("astrid.v1.request.k", ASK % method))
    guest.handles(ask + guest.when("hear", guest.say("k.said")))
    rows = {"k.go": "go", "astrid.v1.response.k": "hear"}
    rights = {"uplink": True} if uplink else {}
    capsule(tmp_path, "curious", guest, rows, ["astrid.v1.request.k", "k.said"], capabilities=rights)
    async with open_host([tmp_path], state_dir=":memory:", workspace=tmp_path, trust=True) as host:
        host.methods.connections |= {"victim-user": 3, principal: 1}
        data = await told(host, principal)
    assert "victim-user" not in str(data)
    assert str(tmp_path) not in str(data)
    if method == "GetStatus":
        assert data["pid"] == 0
        assert data["connections_by_principal"] == [{"principal": principal, "count": 1}]
        assert data["connected_clients"] == 1
        assert data["loaded_capsules"] == ["curious"]


@pytest.mark.parametrize("principal", ["default", "mallory"])
async def test_the_owner_who_asks_from_outside_is_told_all(principal: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with open_host([tmp_path / "empty"], state_dir=":memory:", workspace=tmp_path) as host:
        host.methods.connections |= {"victim-user": 3}
        async with host.subscribe("astrid.v1.response.k") as answers:
            host.publish("astrid.v1.request.k", {"type": "raw_json", "method": "GetStatus"}, principal=principal)
            data = (await next_of(answers)).payload["data"]
    assert data["pid"] == os.getpid()
    assert ("victim-user" in str(data)) is (principal == "default")
