"""A mistake in a WIT text is told with its line and column, and with what was expected; nothing else is ever raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from astrid_host.errors import WitError
from astrid_host.wit import load_packages, parse, read, resolve

HEAD = "package a:b@1.0.0;\n"
DEEP = 10_000


def mistake(text: str) -> WitError:
    with pytest.raises(WitError) as raised:
        resolve([parse(text)])
    return raised.value


# `«` stands before the token that the error must point at; the second text must be in the message.
MISTAKES = {
    "an empty text": ("«", "expected 'package namespace:name@version;' before everything else"),
    "no package": ("«interface i {}", "expected 'package namespace:name@version;'"),
    "a package without namespace": ("package a«;", "expected ':', found ';'"),
    "a bad version": ("package a:b@«1;", "expected a version such as 1.0.0, found '1'"),
    "a second package": ("package a:b;\n«package a:c;", "once and first"),
    "an item outside": ("package a:b {}\n«interface i {}", "expected 'package', found 'interface'"),
    "an unknown item": (f"{HEAD}«record r {{}}", "expected 'interface', 'world', 'use' or 'package'"),
    "an unknown character": (f"{HEAD}interface i {{ f: func(); «# }}", "unexpected character '#'"),
    "a control character": (f"{HEAD}«\0", "unexpected character '\\x00'"),
    "mixed case": (f"{HEAD}interface i {{\n  «fooBar: func();\n}}", "'fooBar' is no name"),
    "a double hyphen": (f"{HEAD}interface «a--b {{}}", "'a--b' is no name"),
    "a hyphen at the end": (f"{HEAD}interface «a- {{}}", "'a-' is no name"),
    "an open comment": (f"{HEAD}interface i {{ }} «/* /* */", "expected '*/'"),
    "a keyword as name": (f"{HEAD}interface i {{ «list: func(); }}", "write %list to use it as a name"),
    "a keyword as field": (f"{HEAD}interface i {{ record r {{ a: u8, «type: u8 }} }}", "write %type"),
    "an open interface": (f"{HEAD}interface i {{ f: func();«", "found the end of the text"),
    "a missing semicolon": (f"{HEAD}interface i {{ f: func()\n «g: func(); }}", "expected '->' or ';', found 'g'"),
    "no semicolon after a result": (f"{HEAD}interface i {{ f: func() -> u8 «}}", "expected ';', found '}'"),
    "a missing comma": (f"{HEAD}interface i {{ record r {{ a: u8 «b: u8 }} }}", "expected ',' or '}', found 'b'"),
    "a parameter without type": (f"{HEAD}interface i {{ f: func(a«); }}", "expected ':', found ')'"),
    "a list of nothing": (f"{HEAD}interface i {{ type t = list«; }}", "expected '<', found ';'"),
    "a list of two": (f"{HEAD}interface i {{ type t = list<u8«, u8>; }}", "expected '>', found ','"),
    "an option without type": (f"{HEAD}interface i {{ type t = option<«>; }}", "expected a type, found '>'"),
    "an empty tuple": (f"{HEAD}interface i {{ type t = «tuple<>; }}", "at least one type"),
    "an empty result": (f"{HEAD}interface i {{ type t = result<«>; }}", "expected a type, found '>'"),
    "a result of nothing": (f"{HEAD}interface i {{ type t = result<_«>; }}", "expected ',', found '>'"),
    "a result of three": (f"{HEAD}interface i {{ type t = result<u8, u8«, u8>; }}", "expected '>'"),
    "a blank type": (f"{HEAD}interface i {{ type t = list<«_>; }}", "expected a type, found '_'"),
    "arguments for a name": (f"{HEAD}interface i {{ type t = string«<u8>; }}", "expected ';', found '<'"),
    "a handle of a list": (f"{HEAD}interface i {{ type t = own<«list<u8>>; }}", "the resource that own is of"),
    "a handle of a record": (f"{HEAD}interface i {{ record r {{ a: u8 }} f: func(a: borrow<«r>); }}", "is none"),
    "an empty record": (f"{HEAD}interface i {{ record «r {{}} }}", "at least one field"),
    "an empty variant": (f"{HEAD}interface i {{ variant «v {{}} }}", "at least one case"),
    "an empty enum": (f"{HEAD}interface i {{ enum «e {{}} }}", "at least one case"),
    "no flags": (f"{HEAD}interface i {{ flags «f {{}} }}", "at least one flag"),
    "33 flags": (
        f"{HEAD}interface i {{ flags f {{ {', '.join(f'f{n}' for n in range(32))}, «f32x }} }}",
        "33 flags, 32 are allowed",
    ),
    "an unknown type": (f"{HEAD}interface i {{ f: func(a: list<«nothing>); }}", "no type 'nothing' here"),
    "an unknown field type": (f"{HEAD}interface i {{ record r {{ a: option<«x> }} }}", "no type 'x' here"),
    "an unknown handle": (f"{HEAD}interface i {{ f: func(a: borrow<«x>); }}", "no type 'x' here"),
    "an escaped type is not built in": (f"{HEAD}interface i {{ type t = «%string; }}", "no type 'string' here"),
    "a type twice": (f"{HEAD}interface i {{ type t = u8; type «t = u8; }}", "'t' is declared twice in a:b/i@1.0.0"),
    "a type and a function": (f"{HEAD}interface i {{ type t = u8; «t: func(); }}", "'t' is declared twice"),
    "a function twice": (f"{HEAD}interface i {{ f: func(); «f: func(); }}", "'f' is declared twice"),
    "names that differ in case": (f"{HEAD}interface i {{ enum e {{ ab, «AB }} }}", "'AB' is declared twice in e"),
    "a case twice": (f"{HEAD}interface i {{ variant v {{ a, b, «a(u8) }} }}", "'a' is declared twice in v"),
    "a parameter twice": (f"{HEAD}interface i {{ f: func(a: u8, «a: u8); }}", "'a' is declared twice in f"),
    "a parameter named self": (f"{HEAD}interface i {{ resource r {{ m: func(«self: u8); }} }}", "'self' is declared"),
    "a method twice": (f"{HEAD}interface i {{ resource r {{ m: func(); «m: static func(); }} }}", "'m' is declared"),
    "two constructors": (f"{HEAD}interface i {{ resource r {{ constructor(); «constructor(); }} }}", "declared twice"),
    "a constructor of another": (
        f"{HEAD}interface i {{ resource r {{ constructor() -> «u8; }} }}",
        "expected a constructor to return r",
    ),
    "an unknown type in a result": (f"{HEAD}interface i {{ resource r; f: func() -> list<«x>; }}", "no type 'x'"),
    "a borrow in a result": (f"{HEAD}interface i {{ resource r; f: func() -> «list<borrow<r>>; }}", "borrowed handles"),
    "a type of itself": (f"{HEAD}interface i {{ record r {{ a: list<«r> }} }}", "'r' is defined by itself"),
    "types of each other": (
        f"{HEAD}interface i {{ type a = b; record b {{ c: option<«a> }} }}",
        "'a' is defined by itself, by way of 'b'",
    ),
    "an interface twice": (f"{HEAD}interface i {{}}\nworld «i {{}}", "'i' is declared twice in a:b@1.0.0"),
    "an unknown interface": (f"{HEAD}interface i {{ use «j.{{t}}; }}", "no interface 'j' in a:b@1.0.0"),
    "a world used as interface": (f"{HEAD}world w {{}} interface i {{ use «w.{{t}}; }}", "no interface 'w'"),
    "an interface included": (f"{HEAD}interface i {{}} world w {{ include «i; }}", "no world 'i' in a:b@1.0.0"),
    "an unknown type used": (f"{HEAD}interface i {{ type u = u8; }} interface j {{ use i.{{«t}}; }}", "its types: u"),
    "nothing used": (f"{HEAD}interface i {{}} interface j {{ use «i.{{}}; }}", "at least one type to use"),
    "a name used twice": (
        f"{HEAD}interface i {{ type t = u8; type u = u8; }} interface j {{ use i.{{t, «u as t}}; }}",
        "'t' is declared twice in a:b/j@1.0.0",
    ),
    "an interface of itself": (f"{HEAD}interface i {{ use «i.{{t}}; }}", "a:b/i@1.0.0 uses itself"),
    "interfaces of each other": (
        f"{HEAD}interface i {{ use j.{{t}}; }} interface j {{ use «i.{{t}}; }}",
        "a:b/i@1.0.0 uses itself, by way of a:b/j@1.0.0",
    ),
    "worlds of each other": (f"{HEAD}world v {{ include w; }} world w {{ include «v; }}", "a:b/v@1.0.0 uses itself"),
    "a missing package": (f"{HEAD}interface i {{ use «c:d/e@1.0.0.{{t}}; }}", "there is no package 'c:d@1.0.0'"),
    "a package without its version": (f"{HEAD}interface i {{ use «a:b/i.{{t}}; }}", "there are a:b@1.0.0"),
    "an unused missing package": (f"{HEAD}use «c:d/e@1.0.0 as f;", "there is no package 'c:d@1.0.0'"),
    "a name for two interfaces": (f"{HEAD}use a:b/i@1.0.0 as f; use a:b/i@1.0.0 as «f;", "'f' is used twice"),
    "a name used and declared": (f"{HEAD}use a:b/j@1.0.0 as i; interface «i {{}}", "used from elsewhere"),
    "an unknown export": (f"{HEAD}world w {{ export «i; }}", "no interface 'i'"),
    "an import twice": (f"{HEAD}interface i {{}} world w {{ import i; import «i; }}", "is declared twice in a:b/w"),
    "a function imported twice": (f"{HEAD}world w {{ import f: func(); import «f: func(); }}", "'f' is declared"),
    "a type in an import's name": (f"{HEAD}world w {{ type f = u8; import «f: func(); }}", "'f' is declared twice"),
    "an included name that is taken": (
        f"{HEAD}world v {{ import f: func(); }} world w {{ include «v; import f: func(a: u8); }}",
        "'f' of v is declared here already: rename it, 'with { f as … }'",
    ),
    "a renamed nothing": (f"{HEAD}world v {{}} world w {{ include v with {{ «f as g }} }}", "no import or export of v"),
    "a name renamed twice": (
        f"{HEAD}world v {{ import f: func(); }} world w {{ include v with {{ f as g, «f as h }} }}",
        "'f' is renamed twice",
    ),
    "an unknown item of a world": (f"{HEAD}world w {{ «f: func(); }}", "expected 'import', 'export', 'use'"),
    "an unknown gate": (f"{HEAD}@«soon(version = 1.0.0)\ninterface i {{}}", "expected 'since' or 'unstable'"),
    "a gate without version": (f"{HEAD}@since(version = «soon)\ninterface i {{}}", "expected a version such as"),
    "an asynchronous function": (f"{HEAD}interface i {{ f: «async func(); }}", "capsules have no such functions"),
    "an asynchronous type": (f"{HEAD}interface i {{ f: func(a: «stream<u8>); }}", "capsules have no such types"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_an_error_points_at_the_token_and_says_what_was_expected(case: str) -> None:
    marked, message = MISTAKES[case]
    before, _, after = marked.partition("«")
    error = mistake(before + after)
    assert message in error.message
    line = before.count("\n") + 1
    assert (error.line, error.column) == (line, len(before) - before.rfind("\n"))
    assert str(error) == f"<text>:{error.line}:{error.column}: {error.message}"


DEEPLY = {
    "a type in a type": "interface i { type t = " + "list<" * DEEP + "u8" + ">" * DEEP + "; }",
    "an open type": "interface i { type t = " + "result<" * DEEP,
    "types that name the next": "interface i { "
    + "".join(f"type t{n} = option<t{n + 1}>; " for n in range(DEEP))
    + f"type t{DEEP} = u8; }}",
    "types that name the last": "interface i { type t0 = u8; "
    + "".join(f"record t{n + 1} {{ a: t{n} }} " for n in range(DEEP))
    + "}",
    "types that double": "interface i { type t0 = u8; "
    + "".join(f"type t{n + 1} = tuple<t{n}, t{n}>; " for n in range(60))
    + "}",
    "a comment in a comment": "/*" * DEEP,
    "brackets": "interface i { f: func(" + "(" * DEEP,
    "gates": "@since(version = 1.0.0) " * DEEP,
}


@pytest.mark.parametrize("case", DEEPLY)
def test_what_nests_too_deep_is_an_error_of_the_text(case: str) -> None:
    assert mistake(HEAD + DEEPLY[case]).line == 2


CHAINS = {
    "aliases": "interface i0 { " + "".join(f"type t{n} = t{n + 1}; " for n in range(DEEP)) + f"type t{DEEP} = u8; }}",
    "interfaces": "".join(f"interface i{n} {{ use i{n + 1}.{{t}}; }}\n" for n in range(DEEP // 4))
    + f"interface i{DEEP // 4} {{ type t = u8; }}",
    "worlds": "".join(f"world w{n} {{ include w{n + 1}; }}\n" for n in range(DEEP // 4)) + f"world w{DEEP // 4} {{}}",
}


@pytest.mark.parametrize("case", CHAINS)
def test_a_long_chain_of_names_is_resolved_in_any_order(case: str) -> None:
    found = resolve([parse(HEAD + CHAINS[case])])["a:b@1.0.0"]
    assert found.interfaces or found.worlds


def test_an_error_names_the_file_it_is_in(tmp_path: Path) -> None:
    file = tmp_path / "one.wit"
    file.write_text(f"{HEAD}interface i {{\n\tuse j.{{t}};\n}}\n")
    with pytest.raises(WitError) as raised:
        load_packages(tmp_path)
    assert (raised.value.file, raised.value.line, raised.value.column) == (file, 3, 6)
    assert str(raised.value).startswith(f"{file}:3:6: ")


def test_a_package_in_two_files_declares_a_name_once_and_the_error_is_in_the_second() -> None:
    first = parse(f"{HEAD}interface i {{}}", Path("first.wit"))
    second = parse(f"{HEAD}\ninterface i {{}}", Path("second.wit"))
    with pytest.raises(WitError, match=r"second\.wit:3:11: 'i' is declared twice"):
        resolve([first, second])


def test_a_file_that_is_no_text_is_an_error_at_its_first_bad_byte(tmp_path: Path) -> None:
    file = tmp_path / "bad.wit"
    file.write_bytes("package a:b;\n// é\n// ".encode() + b"\xff")
    with pytest.raises(WitError, match=r"expected UTF-8, found the byte 0xff") as raised:
        read(file)
    assert (raised.value.line, raised.value.column) == (3, 4)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WitError, match="cannot be read"):
        read(tmp_path / "missing.wit")
