// AssemblyScript cannot write a hyphen in a name, and the names that a host looks up have some. This transform
// gives each export of `exports.ts` the name that the world of `astrid:guest@1.0.0` has for it.
// A capsule that does not export `astrid_hook_trigger` is refused: no host could call it.

import { Transform } from "assemblyscript/transform";

const CANONICAL_NAMES = new Map([
  ["astrid_hook_trigger", "astrid-hook-trigger"],
  ["cabi_post_astrid_hook_trigger", "cabi_post_astrid-hook-trigger"],
]);

export default class CanonicalExports extends Transform {
  afterCompile(module) {
    for (const [written, canonical] of CANONICAL_NAMES) {
      const found = module.getExport(written);
      if (!found) {
        throw new Error(
          `the capsule does not export ${written}: add \`export * from "@astrid-host/sdk/exports";\` to its index.ts`,
        );
      }
      const { value } = this.binaryen.getExportInfo(found);
      module.removeExport(written);
      module.addFunctionExport(value, canonical);
    }
  }
}
