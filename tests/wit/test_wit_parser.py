"""What WIT can say, and what the parser makes of it."""

from __future__ import annotations

import pytest

from astrid_host.wit import (
    Borrow,
    Case,
    Enum,
    Field,
    Flags,
    Function,
    Interface,
    ListOf,
    OptionOf,
    Own,
    Package,
    Primitive,
    Record,
    Resource,
    ResultOf,
    TupleOf,
    Type,
    Variant,
    parse,
    resolve,
)

PRIMITIVES = {*("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"), *("f32", "f64", "bool", "char", "string")}
U8 = Primitive("u8")
TEXT = Primitive("string")


def package(text: str) -> Package:
    return resolve([parse(f"package a:b@1.0.0;\n{text}")])["a:b@1.0.0"]


def interface(body: str) -> Interface:
    return package(f"interface i {{ {body} }}").interfaces["i"]


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_known(name: str) -> None:
    assert str(interface(f"type t = {name};").types["t"]) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("list<u8>", ListOf(U8)),
        ("option<option<u8>>", OptionOf(OptionOf(U8))),
        ("result", ResultOf(None, None)),
        ("result<u8>", ResultOf(U8, None)),
        ("result<_, u8>", ResultOf(None, U8)),
        ("result<u8, string>", ResultOf(U8, TEXT)),
        ("tuple<u8, list<string>,>", TupleOf((U8, ListOf(TEXT)))),
    ],
)
def test_every_form_of_a_built_in_type_is_read_and_spelled_again(text: str, expected: Type) -> None:
    found = interface(f"type t = {text};").types["t"]
    assert found == expected
    assert str(found) == text.replace(",>", ">")


def test_declared_types_keep_the_order_of_what_is_in_them() -> None:
    found = interface("""
        record r { b: u8, a: e, }
        variant v { z, y(r), }
        enum e { two, one }
        flags f { second, first, }
    """)
    e = Enum("e", ("two", "one"))
    r = Record("r", (Field("b", U8), Field("a", e)))
    assert list(found.types.items()) == [
        ("r", r),
        ("v", Variant("v", (Case("z", None), Case("y", r)))),
        ("e", e),
        ("f", Flags("f", ("second", "first"))),
    ]


def test_an_alias_is_replaced_by_what_it_names_also_when_that_comes_later() -> None:
    found = interface("f: func(a: first); type first = second; type second = list<u8>;")
    assert found.types == {"first": ListOf(U8), "second": ListOf(U8)}
    assert found.functions["f"].params == (Field("a", ListOf(U8)),)


def test_a_resource_has_a_constructor_methods_and_statics_under_their_core_names() -> None:
    found = interface("""
        resource r {
            constructor(a: u8);
            m: func(other: borrow<r>) -> u8;
            s: static func() -> option<r>;
        }
        resource plain;
        g: func(a: r, b: own<plain>);
    """)
    r, plain = Resource("a:b/i@1.0.0", "r"), Resource("a:b/i@1.0.0", "plain")
    assert found.types == {"r": r, "plain": plain}
    this = Field("self", Borrow(r))
    assert found.functions == {
        "[constructor]r": Function("constructor", (Field("a", U8),), Own(r), "constructor", r),
        "[method]r.m": Function("m", (this, Field("other", Borrow(r))), U8, "method", r),
        "[static]r.s": Function("s", (), OptionOf(Own(r)), "static", r),
        "g": Function("g", (Field("a", Own(r)), Field("b", Own(plain))), None),
    }
    assert all(key == made.core_name for key, made in found.functions.items())


def test_a_constructor_may_fail() -> None:
    found = interface("resource r { constructor() -> result<r, string>; }")
    r = Resource("a:b/i@1.0.0", "r")
    assert found.functions["[constructor]r"].result == ResultOf(Own(r), TEXT)


def test_an_alias_of_a_resource_is_that_resource() -> None:
    found = interface("resource r; type s = r; f: func(a: borrow<s>, b: s);")
    r = Resource("a:b/i@1.0.0", "r")
    assert found.types["s"] == r
    assert [field.type for field in found.functions["f"].params] == [Borrow(r), Own(r)]


def test_an_escaped_keyword_is_a_name_like_any_other() -> None:
    found = interface("enum %enum { %list, a } %use: func(%string: %enum, b: string) -> %enum; type %u8 = char;")
    enum = Enum("enum", ("list", "a"))
    assert found.types == {"enum": enum, "u8": Primitive("char")}
    assert found.functions["use"].params == (Field("string", enum), Field("b", TEXT))


def test_names_may_have_digits_and_words_in_capitals() -> None:
    assert list(interface("enum e { usr1, a-2b, HTTP-get, x-URL }").types) == ["e"]


def test_use_gives_the_very_object_of_the_other_interface_or_package() -> None:
    other = parse("package c:d@2.1.0-rc.1; interface j { resource r; record p { a: u8 } }")
    here = parse("""
        package a:b@1.0.0;
        use c:d/j@2.1.0-rc.1 as far;
        interface k { use far.{p as far-p}; }
        interface i { use c:d/j@2.1.0-rc.1.{r, p as q}; use k.{far-p}; f: func(a: borrow<r>) -> q; }
    """)
    for files in ([other, here], [here, other]):
        found = resolve(files)
        j, i = found["c:d@2.1.0-rc.1"].interfaces["j"], found["a:b@1.0.0"].interfaces["i"]
        assert i.types == {"r": j.types["r"], "q": j.types["p"], "far-p": j.types["p"]}
        assert i.types["q"] is j.types["p"]
        assert i.uses == {
            "r": ("c:d/j@2.1.0-rc.1", "r"),
            "q": ("c:d/j@2.1.0-rc.1", "p"),
            "far-p": ("a:b/k@1.0.0", "far-p"),
        }


def test_a_text_may_have_packages_in_braces_and_a_package_several_texts() -> None:
    first = parse(
        "package a:b; interface i { use c:d/j@1.0.0.{t}; } package c:d@1.0.0 { interface j { type t = u8; } }"
    )
    second = parse("package a:b; interface k { use i.{t}; } package c:d@2.0.0 { interface j {} }")
    found = resolve([second, first])
    assert list(found) == ["a:b", "c:d@1.0.0", "c:d@2.0.0"]
    assert set(found["a:b"].interfaces) == {"i", "k"}
    assert found["a:b"].interfaces["k"].id == "a:b/k"
    assert found["a:b"].interfaces["k"].types == {"t": U8}


def test_a_world_imports_and_exports_interfaces_and_functions() -> None:
    found = package("""
        interface i { type t = u8; }
        world w {
            use i.{t};
            record r { a: t }
            import i;
            import a:b/j@1.0.0;
            import log: func(text: string);
            export own-one: interface { use i.{t}; resource q { m: func() -> t; } }
            export run: func(a: r) -> t;
            export a:b/j@1.0.0;
        }
        interface j {}
    """)
    world, i, j = found.worlds["w"], found.interfaces["i"], found.interfaces["j"]
    assert world.types == {"t": U8, "r": Record("r", (Field("a", U8),))}
    assert world.imports == {"a:b/i@1.0.0": i, "a:b/j@1.0.0": j, "log": Function("log", (Field("text", TEXT),), None)}
    assert list(world.exports) == ["own-one", "run", "a:b/j@1.0.0"]
    inline = world.exports["own-one"]
    assert isinstance(inline, Interface)
    assert inline.types["q"] == Resource("a:b/w@1.0.0#own-one", "q")
    assert inline.functions["[method]q.m"].result == U8


def test_include_brings_in_a_world_under_other_names_where_it_says_so() -> None:
    found = package("""
        world w { include v with { f as g, run as start } include u; import i; import e: func(a: u8); }
        world v { import f: func(); import i; export run: func(); }
        world u { include v; export other: func(); }
        interface i {}
        world x { include w with { g as h, f as g }; }
    """)
    v, w, x = (found.worlds[name] for name in "vwx")
    assert set(w.imports) == {"f", "g", "e", "a:b/i@1.0.0"}
    assert set(w.exports) == {"start", "run", "other"}
    assert set(x.imports) == {"g", "h", "e", "a:b/i@1.0.0"}
    assert x.imports["a:b/i@1.0.0"] is found.interfaces["i"]
    assert v.imports["f"] == Function("f", (), None)
    assert x.imports["h"] == Function("h", (), None)


def test_feature_gates_are_left_out() -> None:
    found = interface("""
        @since(version = 1.0.0) @deprecated(version = 1.2.0) f: func();
        @unstable(feature = fancy-more) type t = u8;
        resource r { @since(version = 1.0.0) m: func(); @since(version = 1.0.0) constructor(); }
    """)
    assert set(found.functions) == {"f", "[method]r.m", "[constructor]r"}
    world = package("@since(version = 1.0.0) world w { @since(version = 1.0.0) export f: func(); }").worlds["w"]
    assert set(world.exports) == {"f"}


def test_documentation_belongs_to_what_follows_it() -> None:
    text = """/// Of the package.
        package a:b@1.0.0;
        // A plain comment, and //// is one too.
        //// no
        /// Of the interface.
        ///
        ///   - indented
        @since(version = 1.0.0)
        interface i {
            /** Of the
                function. */
            f: func();
            /* /** nested */ no */
            g: func(); /// Of the resource's method? No: of h.
            h: func();
            resource r {
                /// Of the method.
                m: func();
            }
        }
        /// Of the world.
        world w {
            /// Of the export.
            export run: func();
        }
    """
    found = resolve([parse(text)])["a:b@1.0.0"]
    i, w = found.interfaces["i"], found.worlds["w"]
    assert found.docs == "Of the package."
    assert i.docs == "Of the interface.\n\n  - indented"
    assert i.functions["f"].docs.split() == ["Of", "the", "function."]
    assert i.functions["g"].docs == ""
    assert i.functions["h"].docs == "Of the resource's method? No: of h."
    assert i.functions["[method]r.m"].docs == "Of the method."
    assert w.docs == "Of the world."
    assert w.exports["run"].docs == "Of the export."


def test_comments_and_blanks_may_stand_between_any_two_tokens() -> None:
    text = "interface i { f : func ( a : u8 , ) -> result < _ , u8 > ; }"
    spaced = text.replace(" ", " /* a /* b */ c */ // d\r\n\t")
    assert interface(text[14:-2]).functions == package(spaced).interfaces["i"].functions


def test_the_same_texts_give_the_same_result() -> None:
    text = "interface i { resource r { m: func() -> r; } } world w { import i; }"
    assert package(text) == package(text)
