"""Places of keys: right for whatever TOML there is, or those of the table around."""

from __future__ import annotations

import string
import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.manifest.positions import Positions

TEXT = '''# a comment with [brackets] and "quotes"
top = 1
"quoted.key" = { inner = [1, { deep = 2 }], other = "}" }
dotted . "with space".x = 'literal \\'

[table]  # comment
text = """
[not.a.header]
no = "key" \\""" still"""
literal = \'\'\'
[nor.this]\'\'\'\'
after = 1
[table."sub.table"]
a = 1979-05-27 07:32:00Z
[[array]]
name = "first"
[array.inner]
x = 1
[[array.list]]
y = 1
[[array.list]]
y = 2
[[array]]
name = "second"
many = [
  # ] not the end
  "one", "]",
  [ 1, 2 ],
  { k = "v" },
]
"\\u0061\\U00000062" = 3
last = inf'''

PLACES = {
    ("top",): (2, 1),
    ("quoted.key",): (3, 1),
    ("quoted.key", "inner"): (3, 18),
    ("quoted.key", "inner", 1, "deep"): (3, 32),
    ("quoted.key", "other"): (3, 45),
    ("dotted",): (4, 1),
    ("dotted", "with space", "x"): (4, 1),
    ("table",): (6, 1),
    ("table", "text"): (7, 1),
    ("table", "literal"): (10, 1),
    ("table", "after"): (12, 1),
    ("table", "sub.table"): (13, 1),
    ("table", "sub.table", "a"): (14, 1),
    ("array",): (15, 1),
    ("array", 0): (15, 1),
    ("array", 0, "inner", "x"): (18, 1),
    ("array", 0, "list", 1, "y"): (22, 1),
    ("array", 1): (23, 1),
    ("array", 1, "name"): (24, 1),
    ("array", 1, "many", 0): (27, 3),
    ("array", 1, "many", 1): (27, 10),
    ("array", 1, "many", 3, "k"): (29, 5),
    ("array", 1, "ab"): (31, 1),
    ("array", 1, "last"): (32, 1),
    # What there is not has the place of what is around it.
    ("array", 1, "none"): (23, 1),
    ("array", 7): (15, 1),
    ("none",): (1, 1),
    (): (1, 1),
}


def test_the_sample_is_toml() -> None:
    assert tomllib.loads(TEXT)["array"][1]["ab"] == 3


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_keys_of_every_form_are_found(path: tuple[str | int, ...]) -> None:
    assert Positions(TEXT).place(*path) == PLACES[path]


names = st.text(alphabet=string.ascii_letters + "-_", min_size=3, max_size=8) | st.text(min_size=1, max_size=6)
texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=20)
leaves = (
    st.integers(-9, 9) | st.booleans() | texts | st.sampled_from(['"', "]", "}", "# x", "[x]\ny = 1", "'''", '"""'])
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)
documents = st.dictionaries(names, values, max_size=5)


def keys_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in ((*path, key), *keys_of(inner, (*path, key)))]
    if isinstance(value, list):
        return [found for number, inner in enumerate(value) for found in keys_of(inner, (*path, number))]
    return []


@given(documents, st.booleans())
def test_the_line_of_a_key_has_that_key(document: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)
    positions = Positions(text)
    lines = text.split("\n")
    for path in keys_of(tomllib.loads(text)):
        key = path[-1]
        line, column = positions.place(*path)
        written = lines[line - 1][column - 1 :].lstrip("[")
        if len(path) > 8:
            continue  # so deep are only the tables around kept
        assert isinstance(key, str)
        bare = tomli_w.dumps({key: 1}).removesuffix(" = 1\n")
        assert written.split(" = ")[0].startswith(bare) or bare in written


@given(st.text(alphabet="ab.[]{}=\"'\\,# \n", max_size=40))
def test_any_text_is_scanned_to_an_end(text: str) -> None:
    positions = Positions(text)
    line, column = positions.place("a", "b")
    assert 1 <= line <= text.count("\n") + 1
    assert 1 <= column <= len(text) + 1


@given(st.text(alphabet="ab.[]{}=\"'\\,# \n1", max_size=30))
def test_whatever_is_toml_has_the_places_of_its_keys_at_the_top(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    positions = Positions(text)
    for key in data:
        if key and "\\" not in text:
            line, column = positions.place(key)
            assert key in text.split("\n")[line - 1][column - 1 :]
