"""The component model's canonical ABI, over a memoryview: layouts, lifting, lowering, handles, and the core module to run.

No engine here: an instance is whatever has a `view`, a `realloc` and `handles`. What a guest got wrong is a `GuestFault`;
what the host got wrong a `TypeError` or `ValueError`; a file that is no capsule's a `ModuleRefused`.
"""

from astrid_host.abi.binary import CoreExport, CoreImport
from astrid_host.abi.codegen import (
    DropCode,
    ExportCode,
    Guest,
    ImportCode,
    compile_drop,
    compile_export,
    compile_import,
)
from astrid_host.abi.component import CoreModule, core_module
from astrid_host.abi.exports import ExportKind, export_kinds
from astrid_host.abi.layout import CoreSignature, core_signature
from astrid_host.abi.reach import inner_imports
from astrid_host.abi.resources import HandleTable
from astrid_host.abi.runtime import HOST_BYTES
from astrid_host.abi.values import Err, Ok, Some, Variant

__all__ = [
    "HOST_BYTES",
    "CoreExport",
    "CoreImport",
    "CoreModule",
    "CoreSignature",
    "DropCode",
    "Err",
    "ExportCode",
    "ExportKind",
    "Guest",
    "HandleTable",
    "ImportCode",
    "Ok",
    "Some",
    "Variant",
    "compile_drop",
    "compile_export",
    "compile_import",
    "core_module",
    "core_signature",
    "export_kinds",
    "inner_imports",
]
