// `astrid:fs/host@1.0.0`, the reading half. A path is `cwd://…` (the workspace, also when nothing stands before it),
// `home://…` (the principal's own folder) or `/tmp/…`. The manifest's `fs_read` rows say what may be read; anything
// else fails with `capability-denied`.

import { Lowered, returnArea, takeBytes, takeStrings } from "./canonical";
import { Result, takeError } from "./result";

const ERRORS: StaticArray<string> = [
  "not-found",
  "access",
  "capability-denied",
  "boundary-escape",
  "invalid-path",
  "would-block",
  "is-directory",
  "not-directory",
  "not-empty",
  "too-large",
  "quota",
  "cross-vfs",
  "already-exists",
  "closed",
  "unknown",
];

@external("astrid:fs/host@1.0.0", "fs-exists")
declare function hostExists(path: usize, length: usize, result: usize): void;

@external("astrid:fs/host@1.0.0", "fs-readdir")
declare function hostReaddir(path: usize, length: usize, result: usize): void;

@external("astrid:fs/host@1.0.0", "read-file")
declare function hostReadFile(path: usize, length: usize, result: usize): void;

/** Whether there is something at a path. */
export function exists(path: string): Result<bool> {
  const lowered = Lowered.of(path);
  const area = returnArea();
  hostExists(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<bool>(takeError(area + 4, ERRORS));
  return Result.ok<bool>(load<u8>(area, 4) != 0);
}

/** The names in a folder, without their path. */
export function readDirectory(path: string): Result<string[]> {
  const lowered = Lowered.of(path);
  const area = returnArea();
  hostReaddir(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<string[]>(takeError(area + 4, ERRORS));
  return Result.ok<string[]>(takeStrings(area + 4));
}

/** All bytes of a file of at most 10 MiB. */
export function readFile(path: string): Result<Uint8Array> {
  const lowered = Lowered.of(path);
  const area = returnArea();
  hostReadFile(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<Uint8Array>(takeError(area + 4, ERRORS));
  return Result.ok<Uint8Array>(takeBytes(area + 4));
}
