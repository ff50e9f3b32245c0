"""`meta.json` beside a capsule: what counts of it, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from astrid_host.errors import LoadError
from astrid_host.manifest import Meta, check_meta, read_meta


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert read_meta(tmp_path) is None
    assert check_meta(tmp_path) == (None, [])


def test_its_hash_and_version_are_read_and_nothing_else(tmp_path: Path) -> None:
    text = '{"version": "1.0.0", "wasm_hash": "ABC", "imports": {"a": 1}, "installed_at": null, "signer": []}'
    (tmp_path / "meta.json").write_text(text)
    assert read_meta(tmp_path) == Meta("1.0.0", "abc")
    assert check_meta(tmp_path)[1] == []


@pytest.mark.parametrize("text", ["{}", '{"wasm_hash": null}', '{"wasm_hash": ""}', '{"version": 3}'])
def test_without_a_hash_it_counts_with_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    assert read_meta(tmp_path) == Meta()
    (problem,) = check_meta(tmp_path)[1]
    assert problem.severity == "warning"
    assert "has no wasm_hash" in problem.message
    assert problem.file == tmp_path / "meta.json"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"[]", "must hold a JSON object; found an array"),
        (b'{"wasm_hash": 1}', "wasm_hash must be a string; found 1"),
        (b"\xff", "it is not UTF-8"),
        (b"[" * 60_000, "it is not JSON"),
        (b" " * ((64 << 10) + 1), "larger than"),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_a_load_error(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "meta.json").write_bytes(raw)
    meta, (problem,) = check_meta(tmp_path)
    assert meta is None
    assert problem.severity == "error"
    assert said in problem.message
    with pytest.raises(LoadError, match=r"meta.json: .*; install the capsule again, or remove the file"):
        read_meta(tmp_path)


def test_a_folder_of_that_name_and_a_dangling_link_are_problems(tmp_path: Path) -> None:
    (tmp_path / "meta.json").symlink_to("nowhere")
    assert check_meta(tmp_path)[1][0].message == "there is no such file"
    (tmp_path / "meta.json").unlink()
    (tmp_path / "meta.json").mkdir()
    assert check_meta(tmp_path)[1][0].message == "it is a folder, not a file"
