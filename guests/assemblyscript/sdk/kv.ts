// `astrid:kv/host@1.0.0`: values that outlive the call. Each capsule has a store of its own for each principal.
// A key has 1 to 256 bytes. All functions fail with `invalid-key`, `too-large` or `quota` where the host says so.

import { Lowered, returnArea, takeBytes, takeStrings } from "./canonical";
import { Result, takeError } from "./result";

const ERRORS: StaticArray<string> = ["invalid-key", "too-large", "quota", "cas-mismatch", "unknown"];
const CAS_MISMATCH: u8 = 3;

@external("astrid:kv/host@1.0.0", "kv-get")
declare function hostGet(key: usize, keyLength: usize, result: usize): void;

@external("astrid:kv/host@1.0.0", "kv-set")
declare function hostSet(key: usize, keyLength: usize, value: usize, valueLength: usize, result: usize): void;

@external("astrid:kv/host@1.0.0", "kv-delete")
declare function hostDelete(key: usize, keyLength: usize, result: usize): void;

@external("astrid:kv/host@1.0.0", "kv-list-keys")
declare function hostListKeys(prefix: usize, prefixLength: usize, result: usize): void;

@external("astrid:kv/host@1.0.0", "kv-cas")
declare function hostCas(
  key: usize,
  keyLength: usize,
  hasExpected: i32,
  expected: usize,
  expectedLength: usize,
  value: usize,
  valueLength: usize,
  result: usize,
): void;

/** The value under a key, or null when there is none. */
export function get(key: string): Result<Uint8Array | null> {
  const lowered = Lowered.of(key);
  const area = returnArea();
  hostGet(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<Uint8Array | null>(takeError(area + 4, ERRORS));
  if (load<u8>(area, 4) == 0) return Result.ok<Uint8Array | null>(null);
  return Result.ok<Uint8Array | null>(takeBytes(area + 8));
}

/** Stores a value of at most 10 MiB under a key. The value of the result is always `true`. */
export function set(key: string, value: Uint8Array): Result<bool> {
  const lowered = Lowered.of(key);
  const area = returnArea();
  hostSet(lowered.pointer, lowered.length, value.dataStart, value.byteLength, area);
  lowered.free();
  return done(area);
}

/** Removes a key; one that is not there is fine. The value of the result is always `true`. */
export function remove(key: string): Result<bool> {
  const lowered = Lowered.of(key);
  const area = returnArea();
  hostDelete(lowered.pointer, lowered.length, area);
  lowered.free();
  return done(area);
}

/** The keys that begin with a prefix, whole and sorted. More than 1,024 fail with `too-large`. */
export function listKeys(prefix: string): Result<string[]> {
  const lowered = Lowered.of(prefix);
  const area = returnArea();
  hostListKeys(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<string[]>(takeError(area + 4, ERRORS));
  return Result.ok<string[]>(takeStrings(area + 4));
}

/**
 * Stores `value` if the key holds exactly `expected` now; null expects that there is no such key.
 * The value of the result says whether it was stored; `false` means that somebody was faster.
 */
export function compareAndSet(key: string, expected: Uint8Array | null, value: Uint8Array): Result<bool> {
  const lowered = Lowered.of(key);
  const area = returnArea();
  let expectedStart: usize = 0;
  let expectedLength: usize = 0;
  if (expected !== null) {
    expectedStart = expected.dataStart;
    expectedLength = expected.byteLength;
  }
  hostCas(
    lowered.pointer,
    lowered.length,
    i32(expected !== null),
    expectedStart,
    expectedLength,
    value.dataStart,
    value.byteLength,
    area,
  );
  lowered.free();
  if (load<u8>(area) != 0 && load<u8>(area, 4) == CAS_MISMATCH) return Result.ok<bool>(false);
  return done(area);
}

function done(area: usize): Result<bool> {
  if (load<u8>(area) == 0) return Result.ok<bool>(true);
  return Result.failed<bool>(takeError(area + 4, ERRORS));
}
