"""The rules of the house that no linter holds: one room touches raw memory, every module says what it is, files stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import astrid_host

PACKAGE = Path(astrid_host.__file__).parent
CHECKOUT = PACKAGE.parent
MOST_LINES = 450
VAGUE = re.compile(r"(^|_)(utils?|helpers?|common|managers?|misc|stuff)($|_)")
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = [*MODULES, *sorted((CHECKOUT / "tests").rglob("*.py")), *sorted((CHECKOUT / "benchmarks").rglob("*.py"))]


@cache
def _text(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(_text(file))


def _shown(file: Path) -> str:
    return file.relative_to(CHECKOUT).as_posix()


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_only_the_engine_touches_raw_memory_and_the_private_part_of_wasmtime() -> None:
    # The supervisor of a child process is a program of its own, which asks the kernel for one thing.
    supervisor = PACKAGE / "hostcalls" / "process" / "supervisor.py"
    others = [file for file in MODULES if (PACKAGE / "engine") not in file.parents and file != supervisor]
    raw = {"ctypes", "wasmtime", "cffi"}
    assert [_shown(file) for file in others if raw & {name.split(".")[0] for name in _imported(_tree(file))}] == []


def test_every_module_says_what_it_is() -> None:
    assert [_shown(file) for file in FILES if not (ast.get_docstring(_tree(file)) or "").strip()] == []


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    assert [_shown(file) for file in FILES if len(_text(file).splitlines()) > MOST_LINES] == []


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    vague = []
    for file in FILES:
        classes = [_snake(node.name) for node in ast.walk(_tree(file)) if isinstance(node, ast.ClassDef)]
        folders = [parent.name for parent in file.relative_to(CHECKOUT).parents if parent.name]
        vague += [(_shown(file), name) for name in (file.stem, *folders, *classes) if VAGUE.search(name)]
    assert vague == []


def test_every_folder_of_the_package_is_a_room_that_says_what_it_holds() -> None:
    folders = {file.parent for file in MODULES}
    assert [_shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
