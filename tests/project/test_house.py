"""The rules of the house that no linter holds: one room touches raw memory, every module says what it is, files stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import astrid_host

PACKAGE = Path(astrid_host.__file__).parent
CHECKOUT = PACKAGE.parent
MOST_LINES = 450
VAGUE = re.compile(r"(^|_)(utils?|helpers?|common|managers?|misc|stuff)($|_)")
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = [*MODULES, *sorted((CHECKOUT / "tests").rglob("*.py")), *sorted((CHECKOUT / "benchmarks").rglob("*.py"))]


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


@pytest.mark.parametrize("file", MODULES, ids=_shown)
def test_only_the_engine_touches_raw_memory_and_the_private_part_of_wasmtime(file: Path) -> None:
    # The keeper of a child process is a program of its own, which asks the kernel for one thing.
    if (PACKAGE / "engine") in file.parents or file == PACKAGE / "syscalls" / "process" / "keeper.py":
        return
    imported = set(_imported(ast.parse(file.read_text("utf-8"))))
    assert not {name for name in imported if name.split(".")[0] in ("ctypes", "wasmtime", "cffi")}


@pytest.mark.parametrize("file", FILES, ids=_shown)
def test_every_module_says_what_it_is(file: Path) -> None:
    said = ast.get_docstring(ast.parse(file.read_text("utf-8")))
    assert said is not None, f"{_shown(file)} has no docstring"
    assert said.strip()


@pytest.mark.parametrize("file", FILES, ids=_shown)
def test_no_file_is_too_long_to_be_read_at_once(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("file", FILES, ids=_shown)
def test_no_module_or_class_has_a_name_that_says_nothing(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    classes = [_snake(node.name) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    folders = [parent.name for parent in file.relative_to(CHECKOUT).parents if parent.name]
    assert [name for name in (file.stem, *folders, *classes) if VAGUE.search(name)] == []


def test_every_folder_of_the_package_is_a_room_that_says_what_it_holds() -> None:
    folders = {file.parent for file in MODULES}
    assert [_shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
