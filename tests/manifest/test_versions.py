"""Versions and requirements, as cargo reads them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.manifest.versions import Version, parse_requirement, parse_version

# semver.org, rule 11, and what cargo adds
ORDER = [
    "0.9.9",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
]
ORDER += ["1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.1.0", "1.10.0", "2.0.0"]


def test_versions_are_ordered_as_semver_says() -> None:
    versions = list(map(parse_version, ORDER))
    for place, version in enumerate(versions):
        assert [version < other for other in versions] == [place < other for other in range(len(versions))]
    assert [str(version) for version in versions] == ORDER


def test_build_metadata_does_not_count() -> None:
    assert parse_version("1.2.3+a.01") == parse_version("1.2.3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3-a..b",
        "1.2.3+",
        " 1.2.3",
        "1.2.3\n",
        "1.2.x",
        "-1.2.3",
        "١.2.3",
        "99999999999999999999.0.0",
        "1.2.3-a_b",
    ],
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version: expected major"):
        parse_version(text)


ALLOWED = {
    "^1.2.3": (["1.2.3", "1.2.4", "1.9.0"], ["1.2.2", "2.0.0", "1.2.3-a", "1.3.0-a"]),
    "^1.2": (["1.2.0", "1.9.9"], ["1.1.9", "2.0.0"]),
    "^1": (["1.0.0", "1.99.0"], ["0.9.9", "2.0.0", "1.0.0-a"]),
    "^0.2.3": (["0.2.3", "0.2.9"], ["0.2.2", "0.3.0"]),
    "^0.2": (["0.2.0", "0.2.9"], ["0.1.9", "0.3.0"]),
    "^0.0.3": (["0.0.3"], ["0.0.4", "0.0.2"]),
    "^0.0": (["0.0.0", "0.0.9"], ["0.1.0"]),
    "^0": (["0.0.0", "0.9.9"], ["1.0.0"]),
    "1.2.3": (["1.2.3", "1.9.0"], ["1.2.2", "2.0.0"]),
    "1.2": (["1.2.0", "1.3.0"], ["2.0.0"]),
    "0.10": (["0.10.4"], ["0.11.0", "0.9.0"]),
    "~1.2.3": (["1.2.3", "1.2.9"], ["1.3.0", "1.2.2"]),
    "~1.2": (["1.2.0", "1.2.9"], ["1.3.0", "1.1.0"]),
    "~1": (["1.0.0", "1.9.0"], ["2.0.0", "0.9.0"]),
    "=1.2.3": (["1.2.3", "1.2.3+b"], ["1.2.4", "1.2.3-a"]),
    "=1.2": (["1.2.0", "1.2.9"], ["1.3.0"]),
    "=1": (["1.0.0", "1.9.9"], ["2.0.0"]),
    "*": (["0.0.0", "9.9.9"], ["1.0.0-a"]),
    "1.*": (["1.0.0", "1.9.0"], ["2.0.0", "0.1.0"]),
    "1.2.*": (["1.2.0", "1.2.9"], ["1.3.0"]),
    "1.x.x": (["1.0.0", "1.9.0"], ["2.0.0"]),
    "0.*": (["0.1.0", "0.9.9"], ["1.0.0"]),
    ">1.2.3": (["1.2.4", "2.0.0"], ["1.2.3", "1.0.0"]),
    ">1.2": (["1.3.0"], ["1.2.9", "1.2.0"]),
    ">1": (["2.0.0"], ["1.9.9"]),
    ">=1.2": (["1.2.0", "2.0.0"], ["1.1.9"]),
    ">=0.10.1": (["0.10.1", "0.10.4", "1.0.0"], ["0.10.0"]),
    "<1.2.3": (["1.2.2", "0.1.0"], ["1.2.3", "1.2.3-a"]),
    "<1.2": (["1.1.9"], ["1.2.0"]),
    "<1": (["0.9.9"], ["1.0.0"]),
    "<=1.2": (["1.2.0", "1.2.9", "1.1.0"], ["1.3.0"]),
    "<=1.2.3": (["1.2.3"], ["1.2.4"]),
    ">=1.2.3, <1.8": (["1.2.3", "1.7.9"], ["1.8.0", "1.2.2"]),
    ">= 1.0 , < 2": (["1.5.0"], ["2.0.0"]),
    "^1.2.3-beta.2": (
        ["1.2.3-beta.2", "1.2.3-beta.10", "1.2.3", "1.3.0"],
        ["1.2.3-beta.1", "1.2.4-beta.2", "1.2.3-alpha"],
    ),
    "~1.2.3-b": (["1.2.3-c", "1.2.3"], ["1.2.3-a", "1.3.0"]),
    "=1.2.3-rc.1": (["1.2.3-rc.1"], ["1.2.3", "1.2.3-rc.2"]),
    ">1.2.3-a": (["1.2.3-b", "1.2.3", "1.2.4"], ["1.2.3-a", "1.2.4-b"]),
    ">=1.2.3-a, <1.2.3": (["1.2.3-a", "1.2.3-z"], ["1.2.3", "1.2.2"]),
    "<=1.2.3-b": (["1.2.3-a", "1.2.3-b", "1.2.2"], ["1.2.3-c", "1.2.3"]),
    "^1.2.3+build": (["1.2.3"], ["1.2.2"]),
}


@pytest.mark.parametrize("text", ALLOWED)
def test_a_requirement_allows_what_cargo_allows(text: str) -> None:
    wanted = parse_requirement(text)
    yes, no = ALLOWED[text]
    assert [version for version in yes if not wanted.allows(parse_version(version))] == []
    assert [version for version in no if wanted.allows(parse_version(version))] == []
    assert str(wanted) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "1.2.3.4",
        "^",
        "^^1",
        "1,",
        ",1",
        "1,,2",
        "*.1",
        "1.*.3",
        "^*",
        "*, 1",
        "1.2-a",
        "1.*-a",
        "01",
        "1 2",
        "=>1",
        "1.2.3-",
        "\t1",
        "1\n",
        "99999999999999999999",
        ",".join(["1"] * 33),
        "==1",
        "!=1",
    ],
)
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version requirement: expected one such as"):
        parse_requirement(text)


numbers = st.integers(0, 3)
versions = st.builds(
    Version, numbers, numbers, numbers, st.lists(st.sampled_from(["0", "1", "10", "a", "b1"]), max_size=2).map(tuple)
)


@given(versions, versions)
def test_order_is_total_and_text_reads_back(one: Version, other: Version) -> None:
    assert (one < other) + (other < one) + (one == other) == 1
    assert parse_version(str(one)) == one


@given(versions, versions)
def test_caret_and_tilde_are_ranges_that_begin_with_what_they_name(version: Version, named: Version) -> None:
    for operator in "^~":
        wanted = parse_requirement(f"{operator}{named}")
        assert wanted.allows(named)
        if wanted.allows(version):
            assert version >= named
            assert version.major == named.major
        assert parse_requirement(f"={named}").allows(version) == (version == named)


@given(st.text(alphabet="0123456789.^~<>=*x, -+ab", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_version, parse_requirement):
        with suppress(ValueError):
            assert str(parse(text))
