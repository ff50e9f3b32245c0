"""astrid:kv as guests call it: keys and values within their limits, one namespace for each capsule and principal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.kv import Kv
from astrid_host.stores import KeyPage, Stores


def call(principal: str = "alice", capsule: str = "notes") -> Any:
    return SimpleNamespace(principal=principal, capsule=SimpleNamespace(id=capsule, storage_id=capsule), message=None)


CALL = call()


@pytest.fixture
def kv() -> Iterator[Kv]:
    stores = Stores(None)
    yield Kv(stores.kv)
    stores.close()


def cleared(kv: Kv, who: Any, prefix: str) -> int:
    """Have the keys of that prefix removed."""

    async def clear() -> int:
        return await kv.kv_clear_prefix(who, prefix)

    return trio.run(clear)


def refusal(run: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(HostError) as caught:
        run()
    assert caught.value.detail
    return caught.value.case, caught.value.payload


def test_it_has_every_function_of_the_interface(kv: Kv) -> None:
    functions = kv.functions()
    assert sorted(functions) == [
        "kv-cas",
        "kv-clear-prefix",
        "kv-delete",
        "kv-get",
        "kv-list-keys",
        "kv-list-keys-page",
        "kv-set",
    ]
    assert [name for name, function in functions.items() if function.waits] == ["kv-clear-prefix"]
    # Those that write, while another process does.
    writers = ["kv-cas", "kv-delete", "kv-set"]
    assert sorted(name for name, function in functions.items() if function.suspends) == writers


def test_a_value_is_read_back_as_it_was_set(kv: Kv) -> None:
    assert kv.kv_get(CALL, "k") is None
    kv.kv_set(CALL, "k", b"\x00\xff")
    assert kv.kv_get(CALL, "k") == b"\x00\xff"
    kv.kv_set(CALL, "k", b"")
    assert kv.kv_get(CALL, "k") == b""
    kv.kv_delete(CALL, "k")
    assert kv.kv_get(CALL, "k") is None
    kv.kv_delete(CALL, "k")


@pytest.mark.parametrize(
    "other", [call("bob"), call(capsule="other"), call("alice", "notes2"), call("a", "lice-notes")]
)
def test_no_principal_and_no_capsule_sees_anothers_keys(kv: Kv, other: Any) -> None:
    kv.kv_set(CALL, "k", b"mine")
    assert kv.kv_get(other, "k") is None
    assert kv.kv_list_keys(other, "") == []
    assert kv.kv_list_keys_page(other, "", None, 10) == KeyPage([], None)
    assert cleared(kv, other, "") == 0
    kv.kv_delete(other, "k")
    kv.kv_cas(other, "k", None, b"theirs")
    assert kv.kv_get(CALL, "k") == b"mine"


BAD_KEYS = ["a\0b", "\0", "x" * 257, "ü" * 129, "x" * 100_000]


@pytest.mark.parametrize("key", ["", *BAD_KEYS])
def test_a_key_that_is_none_is_refused_everywhere(kv: Kv, key: str) -> None:
    for use in (
        lambda: kv.kv_get(CALL, key),
        lambda: kv.kv_set(CALL, key, b""),
        lambda: kv.kv_delete(CALL, key),
        lambda: kv.kv_cas(CALL, key, None, b""),
    ):
        assert refusal(use) == ("invalid-key", None)


@pytest.mark.parametrize("prefix", BAD_KEYS)
def test_a_prefix_that_no_key_can_have_is_refused(kv: Kv, prefix: str) -> None:
    for use in (
        lambda: kv.kv_list_keys(CALL, prefix),
        lambda: kv.kv_list_keys_page(CALL, prefix, None, 1),
        lambda: kv.kv_list_keys_page(CALL, "", prefix, 1),
        lambda: cleared(kv, CALL, prefix),
    ):
        assert refusal(use) == ("invalid-key", None)


@pytest.mark.parametrize("key", ["k", "x" * 256, "ü" * 128, "e\u0301", "\u00e9", "%_*", " ", "\n", "\U0010ffff"])
def test_every_other_text_is_a_key_and_is_not_normalised(kv: Kv, key: str) -> None:
    kv.kv_set(CALL, key, b"1")
    assert kv.kv_list_keys(CALL, "") == [key]
    assert kv.kv_list_keys(CALL, key) == [key]


def test_a_value_has_ten_mebibytes_at_most(kv: Kv) -> None:
    most = bytes(10 << 20)
    kv.kv_set(CALL, "k", most)
    kv.kv_cas(CALL, "k", most, most)
    assert refusal(lambda: kv.kv_set(CALL, "k", most + b"x")) == ("too-large", None)
    assert refusal(lambda: kv.kv_cas(CALL, "k", most, most + b"x")) == ("too-large", None)
    assert kv.kv_get(CALL, "k") == most


def test_a_listing_has_full_keys_sorted_by_their_bytes(kv: Kv) -> None:
    for key in ("b", "a.2", "a.10", "a.\uffff", "a.\U00010000", "a", "ab"):
        kv.kv_set(CALL, key, b"")
    assert kv.kv_list_keys(CALL, "a.") == ["a.10", "a.2", "a.\uffff", "a.\U00010000"]
    assert kv.kv_list_keys(CALL, "") == ["a", "a.10", "a.2", "a.\uffff", "a.\U00010000", "ab", "b"]


def test_a_listing_of_more_than_1024_keys_is_too_large(kv: Kv) -> None:
    for i in range(1024):
        kv.kv_set(CALL, f"k{i:04}", b"")
    assert len(kv.kv_list_keys(CALL, "k")) == 1024
    kv.kv_set(CALL, "k9999", b"")
    assert refusal(lambda: kv.kv_list_keys(CALL, "k")) == ("too-large", None)
    assert len(kv.kv_list_keys(CALL, "k0")) == 1000


@pytest.mark.parametrize(
    ("limit", "length"), [(0, 1024), (1, 1), (1000, 1000), (1024, 1024), (1025, 1024), (2**32 - 1, 1024)]
)
def test_a_page_has_as_many_keys_as_asked_for_and_1024_at_most(kv: Kv, limit: int, length: int) -> None:
    for i in range(1030):
        kv.kv_set(CALL, f"k{i:04}", b"")
    page = kv.kv_list_keys_page(CALL, "k", None, limit)
    assert len(page.keys) == length
    assert page.next_cursor == page.keys[-1] == f"k{length - 1:04}"
    following = kv.kv_list_keys_page(CALL, "k", page.next_cursor, limit)
    assert following.keys[0] == f"k{length:04}"


def test_the_last_page_has_no_cursor(kv: Kv) -> None:
    for key in ("a", "b", "c"):
        kv.kv_set(CALL, key, b"")
    assert kv.kv_list_keys_page(CALL, "", None, 3) == KeyPage(["a", "b", "c"], None)
    assert kv.kv_list_keys_page(CALL, "", "aa", 3) == KeyPage(["b", "c"], None)
    assert kv.kv_list_keys_page(CALL, "", "z", 3) == KeyPage([], None)


def test_clearing_a_prefix_tells_how_many_keys_went(kv: Kv) -> None:
    for key in ("a.1", "a.2", "b"):
        kv.kv_set(CALL, key, b"")
    assert cleared(kv, CALL, "a.") == 2
    assert cleared(kv, CALL, "a.") == 0
    assert cleared(kv, CALL, "") == 1


def test_compare_and_set_changes_only_what_is_as_expected(kv: Kv) -> None:
    assert refusal(lambda: kv.kv_cas(CALL, "k", b"", b"x")) == ("cas-mismatch", None)
    kv.kv_cas(CALL, "k", None, b"1")
    assert refusal(lambda: kv.kv_cas(CALL, "k", None, b"2")) == ("cas-mismatch", None)
    assert refusal(lambda: kv.kv_cas(CALL, "k", b"1\0", b"2")) == ("cas-mismatch", None)
    kv.kv_cas(CALL, "k", b"1", b"2")
    assert kv.kv_get(CALL, "k") == b"2"


def test_a_store_that_fails_is_unknown_to_the_guest_and_told_in_full_to_the_log() -> None:
    stores = Stores(None)
    kv = Kv(stores.kv)
    stores.close()
    for use in (
        lambda: kv.kv_get(CALL, "k"),
        lambda: kv.kv_set(CALL, "k", b""),
        lambda: kv.kv_delete(CALL, "k"),
        lambda: kv.kv_list_keys(CALL, ""),
        lambda: kv.kv_list_keys_page(CALL, "", None, 1),
        lambda: cleared(kv, CALL, ""),
        lambda: kv.kv_cas(CALL, "k", None, b""),
    ):
        with pytest.raises(HostError) as caught:
            use()
        assert (caught.value.case, caught.value.payload) == ("unknown", "the key-value store failed")
        assert "it is closed" in caught.value.detail
