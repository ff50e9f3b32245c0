"""Everything that is refused, and everything that is only said: each with its message, its line, and the TOML to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from astrid_host.errors import ManifestError
from astrid_host.manifest import Problem, check, check_text, load

HEAD = '[package]\nname = "x"\nversion = "1.0.0"\n[[component]]\nfile = "x.wasm"\n'  # five lines
P, S, C, L = "[publish]\n", "[subscribe]\n", "[capabilities]\n", "[limits]\n"
ROW = '{ wit = "opaque" }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capsule's folder, with its module but without its manifest."""
    home = tmp_path / "capsule"
    home.mkdir()
    (home / "x.wasm").write_bytes(b"\0asm")
    (tmp_path / "outside.wasm").write_bytes(b"\0asm")
    (home / "link.wasm").symlink_to(tmp_path / "outside.wasm")
    (home / "round.wasm").symlink_to(home / "round.wasm")
    return home


def only_problem(text: str, folder: Path) -> Problem:
    _, problems = check_text(text, folder / "Capsule.toml")
    assert len(problems) == 1, list(map(str, problems))
    return problems[0]


# text after HEAD, line in the whole, what the message says, what the mend says
ERRORS = [
    # publish and subscribe: their keys
    (P + '"a..b" = "w"', 7, 'the topic "a..b" has an empty segment', ""),
    (P + '"" = "w"', 7, 'the topic "" has an empty segment', ""),
    (S + '".a" = "w"', 7, 'the topic ".a" has an empty segment', ""),
    (S + '\n\n"a." = { wit = "w", handler = "h" }', 9, 'the topic "a." has an empty segment', ""),
    (P + 'a.b.c = "w"', 7, 'the topic "a.b.c" is cut at its dots', f'"a.b.c" = {ROW}'),
    (S + 'a.b = { wit = "w", handler = "h" }', 7, 'the topic "a.b" is cut at its dots', f'"a.b" = {ROW}'),
    ('[subscribe.a.b]\nwit = "w"', 6, 'the topic "a.b" is cut at its dots', f'"a.b" = {ROW}'),
    # publish and subscribe: their fields
    (P + '"a" = 1', 7, 'the row "a" must be a string or a table; found 1', f'"a" = {ROW}'),
    (P + '"a" = {}', 7, 'the row "a" has no wit', f'"a" = {ROW}'),
    (S + '"a" = {}', 7, 'the row "a" has no wit', f'"a" = {ROW}'),
    (P + '"a" = { wit = 1 }', 7, "wit must be a string; found 1", ""),
    (P + '"a" = { wit = "w", tag = "1", rev = "2" }', 7, 'the row "a" has more than one of tag, rev', ""),
    (S + '"a" = { wit = "w", version = "1", path = "2" }', 7, 'the row "a" has more than one of version, path', ""),
    (P + '"a" = { wit = "w", settle = 1 }', 7, "settle must be true or false; found 1", ""),
    (S + '"a" = { wit = "w", priority = 3 }', 7, "priority means nothing without a handler", "priority = 3"),
    (S + '"a" = { wit = "w", except = ["a"] }', 7, "except means nothing without a handler", "except ="),
    (S + '"a.*" = { handler = "h", except = ["a.*"] }', 7, 'except lists topics; "a.*" is a pattern', ""),
    (S + '"a.*" = { handler = "h", except = "a.b" }', 7, "except must be", ""),
    (S + '"a" = { wit = "w", guard = true }', 7, "guard means nothing without a handler", "guard = true"),
    (S + '"a" = { wit = "w", on_error = "fail" }', 7, "on_error means nothing without a handler", 'on_error = "fail"'),
    (S + '"a" = { wit = "w", handler = "" }', 7, "handler is empty", ""),
    (S + '"a" = { wit = "w", handler = 1 }', 7, "handler must be a string; found 1", ""),
    (S + '"a" = { handler = "h", priority = -1 }', 7, "priority must be 0 to 4294967295; found -1", ""),
    (S + '"a" = { handler = "h", priority = true }', 7, "priority must be a whole number; found true", ""),
    (
        S + '"a" = { handler = "h", on_error = "go" }',
        7,
        'on_error must be one of fail, continue; found "go"',
        'on_error = "fail"',
    ),
    (S + '"a" = { handler = "h", guard = "yes" }', 7, 'guard must be true or false; found "yes"', ""),
    (S + '"a" = { handler = "h", reply = "b" }', 7, 'may not publish on "b", its reply', f'[publish]\n"b" = {ROW}'),
    (
        P + '"b.*" = "w"\n' + S + '"a" = { handler = "h", reply = "b.*" }',
        9,
        'reply must be one topic; "b.*" is a pattern',
        "",
    ),
    (P + '"b.*" = "w"\n' + S + '"a" = { handler = "h", reply = "b..c" }', 9, "reply cannot be published on", ""),
    # interfaces
    ('[imports]\n"A:b" = "1"', 7, 'the namespace "A" must begin with a-z', ""),
    ('[imports.a]\n"1b" = "1"', 7, 'the interface "1b" must begin with a-z', ""),
    ('[exports]\n"a:b_c" = "1.0.0"', 7, 'the interface "b_c" must', ""),
    ('[imports]\n"a:b" = "one"', 7, '"one" is no version requirement', '[imports.a]\nb = "^1"'),
    ('[imports]\n"a:b" = 1', 7, "an import is a version requirement; found 1", ""),
    ('[imports]\nllm = "^1"', 7, '"llm" names no namespace', '"astrid:llm" = "^1"'),
    ('[exports]\n"a:b" = "1.0"', 7, '"1.0" is no version: expected major.minor.patch', '[exports.a]\nb = "1.0.0"'),
    ('[exports]\n"a:b" = "^1.0.0"', 7, '"^1.0.0" is no version', ""),
    ('[exports]\n"a:b" = {}', 7, "an export is an exact version; found a table without version", ""),
    (C + 'uplink = true\n[imports]\n"a:b" = "1"', 8, "a capsule with uplink = true may not import anything", ""),
    # commands
    ('[[command]]\nkind = "cli"\nname = "run"', 8, 'the name "run" of a cli command is reserved', ""),
    ('[[command]]\nkind = "cli"\nname = "Run"', 8, 'the name "Run" of a cli command must begin with a-z', ""),
    (f'[[command]]\nkind = "cli"\nname = "{"a" * 33}"', 8, "and have 32 characters at most", ""),
    ('[[command]]\nkind = "both"\nname = "a"', 7, 'kind must be one of slash, cli; found "both"', 'kind = "slash"'),
    ('[[command]]\nkind = "cli"', 6, "[[command]] has no name", 'name = "my-command"'),
    ('[command]\nname = "a"', 6, "command is an array of tables", "[[command]]"),
    # capabilities, tools, env
    (C + "uplink = 1", 7, "uplink must be true or false; found 1", ""),
    (C + 'net = "a"', 7, 'net must be an array; found "a"', ""),
    (C + 'net = [\n"a",\n1]', 9, "net must be an array of strings; found 1 in it", ""),
    (C + "ipc_publish = 3", 7, "ipc_publish must be an array; found 3", ""),
    (C + "bind_workers = -1", 7, "bind_workers must be 0 to 4294967295; found -1", ""),
    ("[[tool]]\nmutable = true", 6, "[[tool]] has no name", 'name = "my_tool"'),
    ("[[tool]]\nname = 'a'\nmutable = 1", 8, "mutable must be true or false; found 1", ""),
    ("[env]\nkey = 3", 7, 'the field "key" must be a table; found 3', 'key = { type = "text", default = 3 }'),
    ('[env]\n"a b" = "c"', 7, 'the field "a b" must be a table', '"a b" = { type = "text", default = "c" }'),
    ('[env.key]\ndefault = "a"', 6, "[env.key] has no type", 'type = "text"'),
    ("[env.key]\ntype = 3", 7, "type must be a string; found 3", ""),
    ('[env.key]\ntype = "text"\nenum_values = 3', 8, "enum_values must be an array; found 3", ""),
    (
        '[env.key]\ntype = "select"\noptions_from = {}',
        8,
        "[env.key.options_from] has no http",
        'http = "{base_url}/models"',
    ),
    (
        '[env.key]\ntype = "select"\noptions_from = { http = "a" }\noptions-from = { http = "b" }',
        9,
        "options_from and options-from are the same: keep one",
        "",
    ),
    # limits
    (L + "memory_bytes = 1", 7, "memory_bytes must be 65536 to 4294967296; found 1", ""),
    (L + "memory_bytes = 1e9", 7, "memory_bytes must be a whole number; found 1000000000.0", ""),
    (L + "timeout_secs = 0", 7, "timeout_secs must be more than 0 and at most 86400 seconds; found 0", ""),
    (L + "timeout_secs = nan", 7, "found nan", ""),
    (L + "timeout_secs = inf", 7, "found inf", ""),
    (L + "timeout_secs = true", 7, "found true", ""),
    (L + 'timeout_secs = "5"', 7, 'found "5"', ""),
    (L + "concurrency = 0", 7, "concurrency must be 1 to 1024; found 0", ""),
    (L + 'on_trap = "restart"', 7, "on_trap must be one of quarantine, reload", 'on_trap = "'),
    ("[[skill]]\nx = 99999999999999999999", 7, "a whole number beyond 64 bits", ""),
]


@pytest.mark.parametrize(("text", "line", "message", "mend"), ERRORS, ids=[row[2][:50] + row[0][:9] for row in ERRORS])
def test_a_manifest_is_refused_with_line_and_mend(folder: Path, text: str, line: int, message: str, mend: str) -> None:
    problem = only_problem(HEAD + text + "\n", folder)
    assert problem.severity == "error"
    assert message in problem.message
    assert problem.line == line
    assert mend in problem.mend if mend else True
    (folder / "Capsule.toml").write_text(HEAD + text + "\n")
    with pytest.raises(ManifestError) as caught:
        load(folder / "Capsule.toml")
    assert caught.value.problems == (problem,)


WARNINGS = [
    # unknown keys
    ("[publishes]", 6, 'unknown key "publishes" in the manifest: did you mean publish?', "publish = …"),
    ("[zzz]", 6, 'unknown key "zzz" in the manifest, which has no effect', ""),
    (C + 'fs-read = ["cwd://"]', 7, 'unknown key "fs-read" in [capabilities]: did you mean fs_read?', "fs_read = …"),
    (C + "allow_http = true", 7, 'unknown key "allow_http" in [capabilities], which', ""),
    (
        S + '"a" = { wit = "w", handlr = "go" }',
        7,
        'unknown key "handlr" in [subscribe.a]: did you mean',
        'handler = "go"',
    ),
    (P + '"a.b" = { wit = "w", setle = true }', 7, 'in [publish."a.b"]: did you mean settle?', "settle = true"),
    (L + "memory = 65536", 7, 'unknown key "memory" in [limits]', "memory_bytes = 65536"),
    (
        '[[tool]]\nname = "a"\ndescription = "b"',
        8,
        'unknown key "description" in [[tool]]: did you',
        'description_for_llm = "b"',
    ),
    ('[env.k]\ntype = "text"\ndefalt = 1.5', 8, 'unknown key "defalt" in [env.k]: did you', "default = 1.5"),
    (
        '[env.k]\ntype = "select"\noptions_from = { http = "u", tokn = 1 }',
        8,
        'unknown key "tokn" in [env.k.options_from]',
        "",
    ),
    ('[imports]\n"a:b" = { version = "1", optinal = true }', 7, "did you mean optional?", "optional = true"),
    ('[exports]\n"a:b" = { version = "1.0.0", optional = true }', 7, 'unknown key "optional" in [exports."a:b"]', ""),
    ("[[uplink]]\nnam = 'a'", 7, "did you mean name?", 'name = "a"'),
    ("[[context_file]]\nfiel = 'a'", 7, "did you mean file?", 'file = "a"'),
    # old forms
    (
        '[[interceptor]]\nevent = "a.b"\naction = "go"\npriority = 3\n[[interceptor]]\nevent = "c"\naction = "d"',
        6,
        "[[interceptor]] is an old form without effect",
        '[subscribe]\n"a.b" = { wit = "opaque", handler = "go", priority = 3 }\n"c" = { wit = "opaque", handler = "d" }',
    ),
    ('[[topic]]\nname = "a.b"', 6, "[[topic]] is an old form without effect", f'[publish]\n"a.b" = {ROW}'),
    (
        '["a.b"]\nhandler = "go"',
        6,
        'the topic "a.b" stands outside of [publish] and [subscribe]',
        f'[publish]\n"a.b" = {ROW}',
    ),
    (C + 'ipc_publish = ["a", "b.*"]', 7, "ipc_publish is an old form", f'[publish]\n"a" = {ROW}\n"b.*" = {ROW}'),
    (C + 'ipc_subscribe = ["a"]', 7, "ipc_subscribe is an old form", f'[subscribe]\n"a" = {ROW}'),
    ('[component.capabilities]\nipc_publish = ["a"]', 7, "ipc_publish is an old form", f'[publish]\n"a" = {ROW}'),
    # rows that can never do anything
    (P + '"1.2.3.4.5.6.7.8.9" = "w"', 7, "can never match: it has 9 segments and a topic has 8", ""),
    (P + '"1.2.3.4.5.6.7.8.*" = "w"', 7, "can never match", ""),
    (P + f'"{"a" * 257}" = "w"', 7, "can never match: it has 257 bytes", ""),
    (P + '"astrid.v1.dispatch.failed.x" = "w"', 7, "only the kernel publishes under astrid.v1.dispatch", ""),
    (P + '"a.*b" = "w"', 7, '"*b" in "a.*b" is no wildcard', ""),
    (S + '"a.>" = "w"', 7, '">" in "a.>" is no wildcard', ""),
    (P + '"*" = "w"', 7, 'the row "*" matches topics of a single segment only', ""),
    (S + '"a.*.b" = "w"', 7, "can subscribe only to something narrower", 'handler = "on_event"'),
    (S + '"1.2.3.4.5.6.7.8.9" = "w"', 7, "can never match: a subscription has 8 segments", ""),
    (S + '"1.2.3.4.5.6.7.8.9.10.11.12.13" = { handler = "h" }', 7, "no topic has more than 12", ""),
    (C + 'fs_read = ["cwd://",\n"./src"]', 8, '"./src" in fs_read allows nothing', 'fs_read = ["cwd://src"]'),
    (
        C + 'fs_write = ["cwd://a/../b"]',
        7,
        "in fs_write allows nothing: expected '*', cwd://…",
        'fs_write = ["cwd://"]',
    ),
    (C + 'net = ["https://*.example.com:443/v1"]', 7, "in net allows nothing", 'net = ["example.com"]'),
    (C + 'net_bind = ["80"]', 7, '"80" in net_bind allows nothing: expected host:port, host:* or unix:…', ""),
    (C + 'net_bind = ["unix:"]', 7, "in net_bind allows nothing", ""),
    (C + 'net_connect = ["a:65536"]', 7, "in net_connect allows nothing", ""),
    (C + 'net_connect = ["*:80"]', 7, "in net_connect allows nothing", ""),
    (C + 'identity = ["root"]', 7, '"root" in identity allows nothing: expected one of resolve, link, admin', ""),
    (C + 'host_process = [""]', 7, "in host_process allows nothing", ""),
    # others
    ('[[component]]\nfile = "y.wasm"', 6, "only the first [[component]] is loaded", ""),
    ('[env.k]\ntype = "float"', 7, 'the type "float" is unknown and taken for text', ""),
    ('[env.ASTRID_SOCKET_PATH]\ntype = "text"', 6, "ASTRID_SOCKET_PATH is set by the host", ""),
    ('[[tool]]\nname = "a"\n[[tool]]\nname = "a"', 8, 'a second [[tool]] is named "a"', ""),
    ('[[mcp_server]]\ntype = "http"', 6, 'the server is not started: its type is "http"', 'type = "stdio"'),
    (
        '[[mcp_server]]\ntype = "stdio"\ncommand = "node"\n[capabilities]\nhost_process = ["sh"]',
        6,
        'the server\'s command "node" is not in host_process',
        '[capabilities]\nhost_process = ["sh", "node"]',
    ),
]


@pytest.mark.parametrize(
    ("text", "line", "message", "mend"), WARNINGS, ids=[row[2][:50] + row[0][:9] for row in WARNINGS]
)
def test_a_manifest_is_loaded_with_a_warning(folder: Path, text: str, line: int, message: str, mend: str) -> None:
    problem = only_problem(HEAD + text + "\n", folder)
    assert problem.severity == "warning"
    assert message in problem.message
    assert problem.line == line
    assert mend in problem.mend if mend else not problem.mend
    (folder / "Capsule.toml").write_text(HEAD + text + "\n")
    assert load(folder / "Capsule.toml").package.name == "x"


PACKAGES = [
    ("", 1, "there is no [package]", '[package]\nname = "my-capsule"'),
    ("package = 1", 1, "package must be a table; found 1", ""),
    ('[package]\nversion = "1.0.0"', 1, "[package] has no name", 'name = "my-capsule"'),
    ('[package]\nname = "x"', 1, "[package] has no version", 'version = "0.1.0"'),
    ('[package]\nname = 1\nversion = "1.0.0"', 2, "name must be a string; found 1", ""),
    ('[package]\nname = "My Capsule"\nversion = "1.0.0"', 2, "must consist of a-z, 0-9 and '-'", 'name = "my-capsule"'),
    ('[package]\nname = ""\nversion = "1.0.0"', 2, 'the name "" must consist of', ""),
    ('[package]\nname = "a/b"\nversion = "1.0.0"', 2, 'the name "a/b" must consist of', 'name = "a-b"'),
    (f'[package]\nname = "{"a" * 129}"\nversion = "1.0.0"', 2, "129 characters; 128 are allowed", ""),
    ('[package]\nname = "x"\nversion = "1.0"', 3, '"1.0" is no version', 'version = "0.1.0"'),
    ('[package]\nname = "x"\nversion = "01.0.0"', 3, "is no version", ""),
    (
        '[package]\nname = "x"\nversion = "1.0.0"\nastrid-version = ">=0.11"',
        4,
        'it needs Astrid ">=0.11"; this host offers',
        ">=0.10.4",
    ),
    (
        '[package]\nname = "x"\nversion = "1.0.0"\nastrid_version = "new"',
        4,
        '"new" is no version requirement',
        ">=0.10.4",
    ),
    ('[package]\nname = "x"\nversion = "1.0.0"\nlicense = ["a"]', 4, "license must be a string; found an array", ""),
    ('[package]\nname = "x"\nversion = "1.0.0"\nlicense-file = 1', 4, "license-file must be a string; found 1", ""),
    ('[package]\nname = "x"\nversion = "1.0.0"\nyields_to = "a"', 4, 'yields_to must be an array; found "a"', ""),
    (
        '[package]\nname = "x"\nversion = "1.0.0"\nlicense-file = "a"\nlicense_file = "b"',
        5,
        "license-file and license_file are the same",
        "",
    ),
]


@pytest.mark.parametrize(
    ("text", "line", "message", "mend"), PACKAGES, ids=[row[2][:50] + str(row[1]) for row in PACKAGES]
)
def test_a_package_is_refused(folder: Path, text: str, line: int, message: str, mend: str) -> None:
    problem = only_problem(text + '\n[[component]]\nfile = "x.wasm"\n', folder)
    assert (problem.severity, problem.line) == ("error", line)
    assert message in problem.message
    assert mend in problem.mend


@pytest.mark.parametrize("wanted", [">=0.10.1", "^0.10", "0.10", "*", ">=0.5, <1", "~0.10.4", "=0.10.4"])
def test_an_astrid_version_that_is_satisfied_is_no_problem(folder: Path, wanted: str) -> None:
    text = HEAD.replace("[[", f'astrid-version = "{wanted}"\n[[')
    assert check_text(text, folder / "Capsule.toml")[1] == []


PACKAGE = '[package]\nname = "x"\nversion = "1.0.0"\n'
RIGHT = blake3(b"\0asm").hexdigest()
COMPONENTS = [
    ('[[component]]\nfile = "/etc/passwd"', 5, "error", 'the file "/etc/passwd" leads out of the capsule\'s folder'),
    ('[[component]]\nfile = "../outside.wasm"', 5, "error", "leads out of the capsule's folder"),
    ('[[component]]\nfile = "link.wasm"', 5, "error", "leads out of the capsule's folder"),
    ('[[component]]\nfile = "round.wasm"', 5, "error", 'there is no file "round.wasm"'),
    ('[[component]]\nfile = "none.wasm"', 5, "error", 'there is no file "none.wasm" beside the manifest: build'),
    ('[[component]]\nfile = "."', 5, "error", 'there is no file "."'),
    ('[[component]]\nfile = ""', 5, "error", '"" is no file name'),
    ('[[component]]\nfile = "a\\u0000b"', 5, "error", "is no file name"),
    (f'[[component]]\nfile = "{"a" * 5000}"', 5, "error", "there is no file"),
    ("[[component]]\nfile = 3", 5, "error", "file must be a string; found 3"),
    ("[[component]]", 4, "error", "[[component]] has no file"),
    ('[component]\nfile = "x.wasm"', 4, "error", "component is an array of tables"),
    ('[[component]]\nentrypoint = "x.wasm"\nfile = "x.wasm"', 5, "error", "file and entrypoint are the same"),
    (
        f'[[component]]\nfile = "x.wasm"\nhash = "{"0" * 64}"',
        6,
        "error",
        'the file "x.wasm" is not the one that hash is of',
    ),
    ('[[component]]\nfile = "x.wasm"\nhash = "sha1:00"', 6, "warning", 'hash "sha1:00" is not compared'),
    ("", 1, "warning", "there is no [[component]], so there is nothing to run"),
]


@pytest.mark.parametrize(("text", "line", "severity", "message"), COMPONENTS, ids=[row[0][14:40] for row in COMPONENTS])
def test_a_component_must_be_a_file_inside_the_folder(
    folder: Path, text: str, line: int, severity: str, message: str
) -> None:
    problem = next(
        problem
        for problem in check_text(PACKAGE + text + "\n", folder / "Capsule.toml")[1]
        if problem.severity == severity
    )
    assert message in problem.message
    if message:
        assert problem.line in (line, line + 1)


@pytest.mark.parametrize("digest", [RIGHT, RIGHT.upper(), f"blake3:{RIGHT}"])
def test_a_hash_that_is_right_is_no_problem(folder: Path, digest: str) -> None:
    text = HEAD + f'hash = "{digest}"\n'
    assert check_text(text, folder / "Capsule.toml")[1] == []


def test_a_link_that_stays_inside_the_folder_is_no_problem(folder: Path) -> None:
    (folder / "inside.wasm").symlink_to("x.wasm")
    text = HEAD.replace("x.wasm", "inside.wasm")
    assert check_text(text, folder / "Capsule.toml")[1] == []


def test_all_problems_are_told_at_once_errors_first_and_by_line(folder: Path) -> None:
    text = HEAD + '[zzz]\n[publish]\n"a..b" = "w"\n[limits]\nconcurrency = 0\nconcurency = 3\n[env]\nk = 1\n'
    (folder / "Capsule.toml").write_text(text)
    manifest, problems = check(folder / "Capsule.toml")
    assert manifest is not None
    assert [(problem.severity, problem.line) for problem in problems] == [
        ("error", 8),
        ("error", 10),
        ("error", 13),
        ("warning", 6),
        ("warning", 11),
    ]
    with pytest.raises(ManifestError) as caught:
        load(folder / "Capsule.toml")
    assert caught.value.problems == tuple(problems)
    assert str(caught.value).count("\n") == 4


def test_a_problem_reads_as_place_severity_message_and_what_to_write() -> None:
    plain = Problem("error", "it is wrong", Path("Capsule.toml"), 12)
    assert str(plain) == "Capsule.toml:12: error: it is wrong"
    one = Problem("warning", "it is odd", Path("Capsule.toml"), 12, 3, "a = 1")
    assert str(one) == "Capsule.toml:12: warning: it is odd (write: a = 1)"
    more = Problem("warning", "it is odd", Path("Capsule.toml"), 12, 3, "[a]\nb = 1")
    assert str(more) == "Capsule.toml:12: warning: it is odd; write:\n    [a]\n    b = 1"


@pytest.mark.parametrize(
    "text",
    [
        P + '"a" = { wit = "TODO" }\n"b" = "opaque"\n"c" = ""\n"d" = { wit = "@scope/repo/wit/x", tag = "v1" }',
        P + '"d" = { settle = true }\n"e" = { path = "x" }\n"a.*.*" = "w"',
        S
        + '"a.*.b" = { handler = "h" }\n"1.2.3.4.5.6.7.8.9" = { handler = "h" }\n"c" = { handler = "h", priority = 0 }',
        C
        + 'kv = []\nnet = ["*", "a.b", "[::1]", "::1"]\nbind_workers = 0\nfs_read = ["*", "home://", "/tmp", "cwd://a"]',
        '[env]\na = { type = "string" }\nb = { type = "integer", default = 1 }\nc = { type = "secret", scope = "any" }',
        '[[command]]\nname = "/Any thing"\n[[command]]\nname = "ok-9"\nkind = "cli"',
        '[exports.a]\nb = "1.0.0"\n[imports]\n"c:d" = "*"\n"e:f" = {}',
        "[[skill]]\nany = { thing = [1] }",
    ],
)
def test_what_astrid_accepts_is_no_problem(folder: Path, text: str) -> None:
    assert check_text(HEAD + text + "\n", folder / "Capsule.toml")[1] == []
