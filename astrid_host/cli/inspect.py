"""`astrid-host inspect`: what a WebAssembly file is to this host: its imports and exports, the ABI that they keep, its limits.

Nothing is compiled or run. What keeps the host from loading the file is said where it stands, and is no failure of the command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, fail, told
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.abi import CoreExport, CoreImport, CoreModule, ExportKind
    from astrid_host.abi.binary import Limits as Pages
    from astrid_host.manifest import Limits
    from astrid_host.wit import Packages

_DROP = "[resource-drop]"
_I32, _NOTHING = ("i32",), ()


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE.wasm", help="A component or a core module.")],
    debug: options.Debug = False,
) -> None:
    """Show imports, exports, ABI and limits of a WebAssembly file."""
    with told(debug):
        from astrid_host.abi import core_module, export_kinds
        from astrid_host.errors import LoadError, ModuleRefused
        from astrid_host.manifest import read_module

        try:
            wasm = read_module(file)
        except LoadError as error:
            fail(str(error), USAGE)
        try:
            core = core_module(wasm)
            kinds = export_kinds(core)
        except ModuleRefused as error:
            fail(f"{file}: {error}", SAID_NO)
        out = sys.stdout.write
        form = "component, of which the main core module is shown" if core.was_component else "core module"
        out(f"{file}: {form}, {len(wasm)} bytes\n\n")
        _print_imports(core)
        _print_exports(core, kinds)
        out(f"\nkind:    {_kind(core, kinds)}\n")
        out(f"abi:     {_abi(core)}\n")
        pages = _memory(core)
        out(f"memory:  {'none is exported, and a capsule has to export one' if pages is None else _size(pages)}\n")
        out(f"limits:  {_limits(file, pages)}\n")


def _print_imports(core: CoreModule) -> None:
    from astrid_host.bundled import wit_folder
    from astrid_host.wit import Packages

    packages = Packages(wit_folder())
    sys.stdout.write("imports:\n")
    for needed in core.imports:
        remark = _remark(packages, needed)
        sys.stdout.write(f"  {printable(needed.module)} {printable(needed.name)} {needed.describe()}{remark}\n")


def _remark(packages: Packages, needed: CoreImport) -> str:
    """What keeps the host from supplying an import, if anything does."""
    from astrid_host.abi import core_signature

    if needed.module == "env":
        return ""
    interface = packages.interface(needed.module)
    name = needed.name
    if interface is None or not (name in interface.functions or name.removeprefix(_DROP) in interface.types):
        return "   (unknown to this host)"
    if name not in interface.functions:
        return ""
    has = core_signature(interface.functions[name], "import")
    if (needed.params, needed.results) == (has.params, has.results):
        return ""
    return f"   (this host has {_signature(has.params, has.results)})"


def _print_exports(core: CoreModule, kinds: dict[str, ExportKind]) -> None:
    canonical = _canonical()
    sys.stdout.write("\nexports:\n")
    for export in core.exports:
        remarks = []
        if export.name in canonical:
            is_right = _is_canonical(export)
            remarks.append("canonical" if is_right else f"a capsule's is {_signature(*canonical[export.name])}")
        if export.name in kinds:
            remarks.append(kinds[export.name].value)
        shown = f"   ({'; '.join(remarks)})" if remarks else ""
        sys.stdout.write(f"  {printable(export.name)} {export.describe()}{shown}\n")


def _canonical() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The core signatures of the functions that a host may call, by name."""
    from astrid_host.abi import core_signature
    from astrid_host.capsules.loading import EXPORTS

    found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "cabi_realloc": (_I32 * 4, _I32),
        "_initialize": (_NOTHING, _NOTHING),
    }
    for name, function in EXPORTS.items():
        signature = core_signature(function, "export")
        found[name] = (signature.params, signature.results)
        found[f"cabi_post_{name}"] = (signature.results, _NOTHING)
    return found


def _is_canonical(export: CoreExport) -> bool:
    return export.kind == "func" and (export.params, export.results) == _canonical()[export.name]


def _signature(params: tuple[str, ...], results: tuple[str, ...]) -> str:
    return f"({', '.join(params)}) -> ({', '.join(results)})"


def _kind(core: CoreModule, kinds: dict[str, ExportKind]) -> str:
    """How a host would call it."""
    from astrid_host.abi import ExportKind
    from astrid_host.capsules.capsule import HOOK, RUN

    names = {export.name for export in core.exports}
    run = kinds.get(RUN, ExportKind.STUB)
    if HOOK not in names and RUN not in names:
        return f"no capsule: it exports neither {HOOK} nor {RUN}"
    if run is ExportKind.REAL or (HOOK not in names and run is ExportKind.UNSURE):
        return f"a run loop: {RUN} subscribes and receives by itself, and handlers of [subscribe] are not called"
    if HOOK not in names:
        return f"a capsule that does nothing: {RUN} returns at once, and there is no {HOOK}"
    if run is ExportKind.UNSURE:
        return f"an interceptor if {RUN} returns at once, as the stub of an SDK does, else a run loop; only calling it tells"
    return f"an interceptor: {HOOK} is called for the handlers of [subscribe]"


def _abi(core: CoreModule) -> str:
    """Whether its exports are as the canonical ABI has them."""
    from astrid_host.capsules.capsule import HOOK

    canonical = _canonical()
    exports = {export.name: export for export in core.exports}
    wrong = [name for name, export in exports.items() if name in canonical and not _is_canonical(export)]
    if wrong:
        return f"not canonical, and refused: {', '.join(wrong)}"
    if HOOK in exports and "cabi_realloc" not in exports:
        return f"incomplete, and refused: {HOOK} without cabi_realloc, so nothing can be passed to it"
    return "canonical"


def _memory(core: CoreModule) -> Pages | None:
    """The pages of the memory that a host uses."""
    return next((export.pages for export in core.exports if (export.name, export.kind) == ("memory", "memory")), None)


def _size(pages: Pages) -> str:
    least, most = pages
    return f"{_pages(least)} at the start, {'no maximum' if most is None else f'{_pages(most)} at most'}"


def _pages(count: int) -> str:
    from astrid_host.capsules.loading import PAGE_BYTES

    return f"{count} page{'' if count == 1 else 's'} ({count * PAGE_BYTES} bytes)"


def _limits(file: Path, pages: Pages | None) -> str:
    """What an instance may take, as the manifest beside the file says."""
    from astrid_host.capsules.loading import PAGE_BYTES
    from astrid_host.manifest import Limits

    given = _limits_beside(file)
    limits = given or Limits()
    names = Limits.__struct_fields__
    own = [name for name in names if getattr(limits, name) != getattr(Limits(), name)]
    parts = [
        "no Capsule.toml beside it has it as its file" if given is None else "",
        f"set beside it: {_shown(limits, own)}" if own else "",
        f"by default: {_shown(limits, [name for name in names if name not in own])}" if len(own) < len(names) else "",
    ]
    if pages is not None and pages[0] * PAGE_BYTES > limits.memory_bytes:
        parts.append("refused: it begins with more memory than that")
    return "; ".join(part for part in parts if part)


def _shown(limits: Limits, names: list[str]) -> str:
    values = ((name, getattr(limits, name)) for name in names)
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values
    )


def _limits_beside(file: Path) -> Limits | None:
    """The limits in the Capsule.toml that has this file as its own; None when there is none that can be read."""
    from astrid_host import manifest

    found, _ = manifest.check(file.parent / "Capsule.toml")
    if found is None or not found.components:
        return None
    try:
        return found.limits if (file.parent / found.components[0].file).samefile(file) else None
    except (OSError, ValueError):  # there is no such file, or it is no name of one
        return None
