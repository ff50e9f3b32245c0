"""A second start compiles nothing; an instance serves one principal; a host has a bound on instances."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import pytest
from guests_in_wat import Guest

from astrid_host.engine import Activation, Engine, Import, Instance, Instances, Linker, Pool, Prelinked, native
from astrid_host.errors import NoInstance
from astrid_host.wit.types import Function

MEMORY = 1 << 20
RUN = Function("run", (), None)


class Nothing:
    """A host without functions."""

    def find(self, _module: str, _name: str) -> Import | None:
        return None

    def known(self) -> Iterable[tuple[str, str]]:
        return ()


def guest() -> bytes:
    """`run` adds one to a byte of its memory."""
    at = "(i32.const 8192)"
    add = f"(i32.store8 {at} (i32.add (i32.load8_u {at}) (i32.const 1)))"
    return Guest(publishes=False).add(f'(func (export "run") {add})').wasm()


def linked(engine: Engine) -> Prelinked:
    return Linker(engine.wasmtime, Nothing()).prelink(engine.module("guest", guest()), {"run": RUN})


def run(instance: Instance) -> int:
    """Call `run`; how often this memory has seen that."""
    call = Activation(instance.module.entries["run"], ())
    call.instance = instance
    assert call.advance()
    return instance.view[8192]


# The cache.


def test_a_second_engine_compiles_nothing(tmp_path: Path) -> None:
    first = Engine(tmp_path / "cache")
    first.module("a", guest())
    second = Engine(tmp_path / "cache")
    assert second.is_cached(guest())
    assert run(linked(second).new(MEMORY)) == 1
    assert (first.compiled, second.compiled) == (1, 0)


def test_the_folder_and_its_files_are_for_their_owner_only(tmp_path: Path) -> None:
    Engine(tmp_path / "cache").module("a", guest())
    (file,) = (tmp_path / "cache").glob("*.module")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_ignored(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    Engine(folder).module("a", guest())
    folder.chmod(mode)
    engine = Engine(folder)
    assert not engine.is_cached(guest())
    engine.module("a", guest())
    assert engine.compiled == 1
    assert "chmod 700" in caplog.text


def test_a_folder_that_is_a_link_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    Engine(tmp_path / "cache").module("a", guest())
    assert list((tmp_path / "real").iterdir()) == []
    assert "not kept" in caplog.text


@pytest.mark.parametrize(
    "code", [b"", b"nonsense", b"\x7fELF" + bytes(5000)], ids=["empty", "nonsense", "an empty ELF"]
)
def test_a_corrupt_file_is_made_anew(code: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Engine(tmp_path / "cache").module("a", guest())
    (file,) = (tmp_path / "cache").glob("*.module")
    file.write_bytes(code)
    with caplog.at_level(logging.WARNING):
        engine = Engine(tmp_path / "cache")
        engine.module("a", guest())
    assert engine.compiled == 1
    assert "made anew" in caplog.text
    again = Engine(tmp_path / "cache")
    again.module("a", guest())
    assert again.compiled == 0


def test_a_file_that_is_cut_off_is_made_anew(tmp_path: Path) -> None:
    Engine(tmp_path / "cache").module("a", guest())
    (file,) = (tmp_path / "cache").glob("*.module")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    engine = Engine(tmp_path / "cache")
    engine.module("a", guest())
    assert engine.compiled == 1


def test_another_module_is_another_file(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "cache")
    engine.module("a", guest())
    engine.module("a", Guest(publishes=False).add('(func (export "run"))').wasm())
    assert engine.compiled == 2
    assert len(list((tmp_path / "cache").glob("*.module"))) == 2


# The pool.


@pytest.fixture(scope="module")
def module() -> Prelinked:
    return linked(Engine(None))


def test_an_instance_is_kept_for_its_principal(module: Prelinked) -> None:
    """The next call of the same principal finds the memory that the last one left."""
    pool = Pool(module, MEMORY, Instances())
    for n in range(1, 4):
        instance = pool.lease("alice")
        assert run(instance) == n
        pool.give_back(instance, 0.0)
    pool.close()


def test_no_principal_sees_the_memory_of_another(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    for who in ("alice", "bob", None, "", "alice "):
        instance = pool.lease(who)
        assert run(instance) == 1
        pool.give_back(instance, 0.0)
    assert run(pool.lease("bob")) == 2
    pool.close()


def test_two_calls_of_one_principal_have_an_instance_each(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    first, second = pool.lease("alice"), pool.lease("alice")
    assert first is not second
    assert pool.instances.live == 2
    pool.discard(first)
    pool.discard(second)
    assert pool.instances.live == 0


def test_a_discarded_instance_is_closed_and_never_leased_again(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    instance = pool.lease("alice")
    run(instance)
    pool.discard(instance)
    assert instance.closed
    assert run(pool.lease("alice")) == 1


def test_at_the_cap_the_least_recently_used_idle_instance_goes(module: Prelinked) -> None:
    shared = Instances(cap=3)
    pools = [Pool(module, MEMORY, shared) for _ in range(3)]
    for n, pool in enumerate(pools):
        pool.give_back(pool.lease("alice"), float(n))
    pools[0].give_back(pools[0].lease("alice"), 9.0)
    newest = pools[2].lease("bob")
    assert shared.live == 3
    assert [bool(pool.idle) for pool in pools] == [True, False, True]
    pools[2].give_back(newest, 10.0)
    for pool in pools:
        pool.close()
    assert shared.live == 0


def test_at_the_cap_without_an_idle_instance_a_call_ends(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances(cap=2))
    first, _second = pool.lease("alice"), pool.lease("bob")
    with pytest.raises(NoInstance, match="try again later"):
        pool.lease("carol")
    pool.give_back(first, 0.0)
    assert pool.lease("carol") is not first
    assert first.closed


def test_a_minute_of_idleness_ends_an_instance(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    old, young = pool.lease("alice"), pool.lease("bob")
    pool.give_back(old, 100.0)
    pool.give_back(young, 130.0)
    assert pool.instances.take_idle(161.0) == [old]
    assert (list(pool.idle), pool.instances.live) == (["bob"], 1)
    old.close()
    pool.close()


def test_closing_a_pool_frees_what_is_idle_now_and_what_works_later(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    at_work, idle = pool.lease("alice"), pool.lease("bob")
    pool.give_back(idle, 0.0)
    pool.close()
    assert (idle.closed, at_work.closed) == (True, False)
    pool.give_back(at_work, 0.0)
    assert at_work.closed
    assert pool.instances.live == 0


def test_held_bytes_are_those_of_idle_instances(module: Prelinked) -> None:
    pool = Pool(module, MEMORY, Instances())
    instance = pool.lease("alice")
    run(instance)
    assert pool.held_bytes() == 0
    pool.give_back(instance, 0.0)
    assert pool.held_bytes() == 4 * 65536
    pool.close()


def test_the_layouts_are_those_of_the_version_that_is_installed() -> None:
    """The engine speaks to the library below its public interface, so another version may not slip in."""
    assert version("wasmtime") == native.VERSION


def test_a_damaged_file_of_the_cache_is_made_anew_and_never_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "modules"
    Engine(cache).module("guest", guest())
    [file] = cache.glob("*.module")
    code = bytearray(file.read_bytes())
    code[len(code) // 2] ^= 0xFF
    file.write_bytes(code)
    engine = Engine(cache)
    engine.module("guest", guest())
    assert (engine.compiled, "is damaged and is made anew" in caplog.text) == (1, True)
