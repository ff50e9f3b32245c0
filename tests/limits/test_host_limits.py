"""The operator's ceilings: a file, a mapping or a structure; what cannot be used is told with its place."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import astrid_host
from astrid_host import HostLimits, open_host
from astrid_host.errors import ManifestError
from astrid_host.limits import GIB, MIB, bytes_of, host_limits, keys, machine_memory

DOCUMENT = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")


def test_every_key_has_a_row_in_the_document_that_says_what_it_counts() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT, re.MULTILINE)
    assert rows == [(name, key.counts) for name, key in keys().items()]


def test_by_default_a_laptop_stays_alive() -> None:
    limits = HostLimits()
    assert limits.memory == min(2 * GIB, machine_memory() // 4)
    assert astrid_host.HostLimits is HostLimits


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("2GiB", 2 * GIB), ("1.5 gib", 3 * GIB // 2), ("512M", 512 * MIB), ("2MB", 2_000_000)],
)
def test_a_size_is_written_as_people_write_it(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "2 parsecs", "1e9", "9" * 40, "٣MiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2GiB"):
        bytes_of(text)


def test_the_file_is_read_and_what_is_given_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text('[host]\nmemory = "1GiB"\nconcurrency = 3\ncall_secs = 1\n')
    assert host_limits(tmp_path) == HostLimits(memory=GIB, concurrency=3, call_secs=1.0)
    assert host_limits(tmp_path, {"memory": "128MiB"}) == HostLimits(memory=128 * MIB, concurrency=3, call_secs=1.0)
    assert host_limits(tmp_path, HostLimits(memory=MIB)) == HostLimits(memory=MIB)
    assert host_limits(tmp_path / "no") == HostLimits()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("memory = true", "memory must be a size"),
        ('memory = "much"', "such as 2GiB"),
        ("memory = 1", "memory must be 65536 to"),
        ("memory = nan", "memory must be a size"),
        ("concurrency = 0", "concurrency must be 1 to"),
        ("concurrency = 1.5", "concurrency must be a whole number"),
        ("call_secs = inf", "call_secs must be a number of seconds"),
        ("call_secs = 0", "call_secs must be 0.001 to"),
        ("memory = [", "it is not TOML"),
    ],
)
def test_a_wrong_value_is_told_with_file_and_line(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text(f"# mine\n[host]\n{line}\n")
    with pytest.raises(ManifestError, match=re.escape(told)) as raised:
        host_limits(tmp_path)
    assert re.search(r"host\.toml:[34]: ", str(raised.value))


def test_an_unknown_key_is_a_warning_that_names_the_nearest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "host.toml").write_text('[host]\nmemry = "1GiB"\n')
    with caplog.at_level(logging.WARNING):
        assert host_limits(tmp_path) == HostLimits()
    assert "host.toml:2: warning: unknown key" in caplog.text
    assert "did you mean memory?" in caplog.text


@pytest.mark.parametrize("given", [{"memry": 1}, {"memory": "x"}, {"concurrency": -1}, HostLimits(memory=1)])
async def test_open_host_refuses_limits_that_cannot_be_used(given: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^limits: "):
        async with open_host([], state_dir=":memory:", workspace=tmp_path, limits=given):
            raise AssertionError("it must not start")
