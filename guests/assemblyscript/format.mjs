// Formats the workspace with prettier, or says with --check which files are not formatted (exit code 1).
// AssemblyScript puts decorators on functions, which TypeScript does not know: prettier sees them as comments.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, extname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as prettier from "prettier";

const HERE = dirname(fileURLToPath(import.meta.url));
const SKIPPED = new Set(["node_modules", "build"]);
const PARSERS = { ".ts": "typescript", ".mjs": "babel", ".json": "json" };
const DECORATOR = /^([ \t]*)(@(?:external|final|inline|unmanaged|unsafe)\b.*)$/gm;
const MASKED = /^([ \t]*)\/\/:(@.*)$/gm;

function* sources(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && !SKIPPED.has(entry.name)) yield* sources(path);
    else if (entry.isFile() && extname(entry.name) in PARSERS) yield path;
  }
}

const isCheck = process.argv.includes("--check");
let wrong = 0;
for (const path of sources(HERE)) {
  const source = readFileSync(path, "utf8");
  const options = { ...(await prettier.resolveConfig(path)), parser: PARSERS[extname(path)] };
  const formatted = await prettier.format(source.replace(DECORATOR, "$1//:$2"), options);
  const result = formatted.replace(MASKED, "$1$2");
  if (result === source) continue;
  wrong++;
  console.log(`${isCheck ? "not formatted" : "formatted"}: ${relative(HERE, path)}`);
  if (!isCheck) writeFileSync(path, result);
}
if (isCheck && wrong > 0) {
  console.error("run `npm run format` to mend it");
  process.exit(1);
}
