// `astrid:sys/host@1.0.0`: log, configuration, caller, clocks, random bytes.

import { Lowered, returnArea, takeBytes, takeString } from "./canonical";
import { Result, takeError } from "./result";

const ERRORS: StaticArray<string> = [
  "capability-denied",
  "config-key-reserved",
  "too-large",
  "registry-unavailable",
  "cancelled",
  "unknown",
];

/** How grave a line of the log is. */
export enum LogLevel {
  Trace,
  Debug,
  Info,
  Warn,
  Error,
}

/** Who caused the call that is running. */
@final
export class Caller {
  constructor(
    /** The user or agent, or null when the event carries none. */
    readonly principal: string | null,
    /** The UUID of the capsule that published the event, or the nil UUID for the host. */
    readonly sourceId: string,
    /** RFC 3339, or empty when there is no caller. */
    readonly timestamp: string,
  ) {}
}

@external("astrid:sys/host@1.0.0", "log")
declare function hostLog(level: i32, message: usize, length: usize): void;

@external("astrid:sys/host@1.0.0", "get-config")
declare function hostGetConfig(key: usize, length: usize, result: usize): void;

@external("astrid:sys/host@1.0.0", "get-caller")
declare function hostGetCaller(result: usize): void;

@external("astrid:sys/host@1.0.0", "clock-ms")
declare function hostClockMs(): u64;

@external("astrid:sys/host@1.0.0", "clock-monotonic-ns")
declare function hostClockMonotonicNs(): u64;

@external("astrid:sys/host@1.0.0", "random-bytes")
declare function hostRandomBytes(length: u64, result: usize): void;

/** Writes a line to the capsule's log. */
export function log(level: LogLevel, message: string): void {
  const lowered = Lowered.of(message);
  hostLog(level, lowered.pointer, lowered.length);
  lowered.free();
}

/** A value of the manifest's `[env]` table, as the operator set it; null when there is no such key. */
export function getConfig(key: string): Result<string | null> {
  const lowered = Lowered.of(key);
  const area = returnArea();
  hostGetConfig(lowered.pointer, lowered.length, area);
  lowered.free();
  if (load<u8>(area) != 0) return Result.failed<string | null>(takeError(area + 4, ERRORS));
  if (load<u8>(area, 4) == 0) return Result.ok<string | null>(null);
  return Result.ok<string | null>(takeString(area + 8));
}

/** Who caused the call that is running. */
export function getCaller(): Result<Caller> {
  const area = returnArea();
  hostGetCaller(area);
  if (load<u8>(area) != 0) return Result.failed<Caller>(takeError(area + 4, ERRORS));
  const principal: string | null = load<u8>(area, 4) == 0 ? null : takeString(area + 8);
  const sourceId = takeString(area + 16);
  return Result.ok<Caller>(new Caller(principal, sourceId, takeString(area + 24)));
}

/** Milliseconds since 1970-01-01 UTC. */
export function clockMs(): u64 {
  return hostClockMs();
}

/** Nanoseconds of a clock that never goes back and whose zero means nothing. */
export function clockMonotonicNs(): u64 {
  return hostClockMonotonicNs();
}

/** Random bytes fit for keys, at most 4,096 a call; more fails with `too-large`. */
export function randomBytes(length: u32): Result<Uint8Array> {
  const area = returnArea();
  hostRandomBytes(length, area);
  if (load<u8>(area) != 0) return Result.failed<Uint8Array>(takeError(area + 4, ERRORS));
  return Result.ok<Uint8Array>(takeBytes(area + 4));
}
