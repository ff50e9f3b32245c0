// Builds capsules of this workspace: `node build.mjs [FOLDER…]`, by default word-tools. Each becomes
// build/<package name>.wasm, the same bytes on every machine. Installs the pinned packages first where they are
// missing. Ends with exit code 1 and the compiler's message when a capsule does not build.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const CAPSULES = process.argv.length > 2 ? process.argv.slice(2) : ["word-tools"];

const readPackage = (folder) => JSON.parse(readFileSync(join(HERE, folder, "package.json"), "utf8"));

function run(command, args, folder) {
  const { status, error } = spawnSync(command, args, { cwd: join(HERE, folder), stdio: "inherit" });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

function isInstalled(name, version) {
  const folder = join("node_modules", name);
  return existsSync(join(HERE, folder, "package.json")) && readPackage(folder).version === version;
}

for (const folder of CAPSULES) {
  if (existsSync(join(HERE, folder, "asconfig.json"))) continue;
  console.error(
    `${folder} is no capsule: name a folder beside build.mjs that has an asconfig.json, such as word-tools`,
  );
  process.exit(2);
}

const needed = { ...readPackage(".").devDependencies, "@astrid-host/sdk": readPackage("sdk").version };
if (!Object.entries(needed).every(([name, version]) => isInstalled(name, version))) {
  run("npm", ["install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"], ".");
}

mkdirSync(join(HERE, "build"), { recursive: true });
const compiler = join(HERE, "node_modules", "assemblyscript", "bin", "asc.js");
for (const folder of CAPSULES) {
  const file = join(HERE, "build", `${readPackage(folder).name}.wasm`);
  run(process.execPath, [compiler, "--outFile", file], folder);
  console.log(`${file}: ${statSync(file).size} bytes`);
}
