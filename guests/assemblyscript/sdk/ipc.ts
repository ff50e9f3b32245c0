// `astrid:ipc/host@1.0.0`: events for other capsules.

import { Lowered, returnArea } from "./canonical";
import { Result, takeError } from "./result";

const ERRORS: StaticArray<string> = [
  "capability-denied",
  "invalid-input",
  "closed",
  "rate-limited",
  "backpressure",
  "quota",
  "timeout",
  "unknown",
];

@external("astrid:ipc/host@1.0.0", "publish")
declare function hostPublish(
  topic: usize,
  topicLength: usize,
  payload: usize,
  payloadLength: usize,
  result: usize,
): void;

/**
 * Publishes an event. `payload` is JSON text of at most 1 MiB. The value of the result is always `true`.
 * Fails with `capability-denied` when no row of the manifest's `[publish]` table matches the topic.
 */
export function publish(topic: string, payload: string): Result<bool> {
  const lowered = Lowered.of(payload);
  const result = publishUtf8(topic, lowered.pointer, lowered.length);
  lowered.free();
  return result;
}

/** Publishes a payload that is UTF-8 in memory already. */
export function publishUtf8(topic: string, payload: usize, length: usize): Result<bool> {
  const lowered = Lowered.of(topic);
  const area = returnArea();
  hostPublish(lowered.pointer, lowered.length, payload, length, area);
  lowered.free();
  if (load<u8>(area) == 0) return Result.ok<bool>(true);
  return Result.failed<bool>(takeError(area + 4, ERRORS));
}
