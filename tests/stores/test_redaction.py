"""Secrets are taken out of texts in every form in which they are sent, and no part of one is left where a text is cut."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from astrid_host.errors import StoreError
from astrid_host.stores.secrets import REDACTED, SecretStore


def no_keyring() -> Any:
    raise StoreError("there is none")


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path, no_keyring)


SECRET = 'päss+wörd/with it\'s "quotes"'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="!'()*"),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        shlex.join(["curl", SECRET]),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        *(base64.b64encode(f"{user}:{SECRET}!".encode()).decode() for user in ("a", "ab", "abc")),
    ],
)
def test_a_secret_is_taken_out_in_every_form_that_it_is_sent_in(store: SecretStore, form: str) -> None:
    store.set("", "x", "k", SECRET)
    text = store.redacted(f"<{form}>")
    assert "***" in text
    assert len(text) < 20


def test_what_was_given_for_this_run_is_taken_out_as_well(store: SecretStore) -> None:
    store.hide("of-this-run")
    store.set("", "x", "k", "stored-one")
    store.unset("", "x", "k")
    store.load()
    store.hide("of-this-run")
    store.hide("short")
    assert store.redacted("of-this-run, stored-one, short") == "***, stored-one, short"


def test_of_a_long_text_neither_the_rest_nor_half_a_secret_is_left(store: SecretStore) -> None:
    assert store.redacted("x" * 10_000) == "x" * REDACTED
    secret = "0123456789abcdef"
    store.set("", "x", "k", secret)
    for before in range(REDACTED - 20, REDACTED + 1):
        text = store.redacted("/" * before + secret * 1000)
        assert "/" * 8000 in text
        assert not set(text) - set("/*")
    assert "0" not in store.redacted(secret * 1000)
