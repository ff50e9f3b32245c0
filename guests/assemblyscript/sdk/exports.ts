// What the host calls, in the form of the canonical ABI. A capsule's index.ts exports all of it; the transform gives
// it the names that AssemblyScript cannot write.

import { dispatch } from "./capsule";
import { Lowered, readString, reallocate, release } from "./canonical";

// record capsule-result { action: string, data: option<string> }
const RESULT: usize = memory.data(20, 4);

let action: Lowered | null = null;
let data: Lowered | null = null;

/** Memory for what the host passes. */
export function cabi_realloc(pointer: usize, size: usize, align: usize, newSize: usize): usize {
  return reallocate(pointer, size, align, newSize);
}

/** Handles one event. Both arguments belong to us, and we free them; the answer is freed by the function below. */
export function astrid_hook_trigger(
  actionPointer: usize,
  actionLength: usize,
  payloadPointer: usize,
  payloadLength: usize,
): usize {
  const name = readString(actionPointer, actionLength);
  release(actionPointer, actionLength);
  const verdict = dispatch(name, payloadPointer, payloadLength);
  release(payloadPointer, payloadLength);

  const said = Lowered.of(verdict.action);
  action = said;
  store<usize>(RESULT, said.pointer);
  store<usize>(RESULT, said.length, 4);
  const text = verdict.data;
  store<u32>(RESULT, u32(text !== null), 8);
  if (text !== null) {
    const carried = Lowered.of(text);
    data = carried;
    store<usize>(RESULT, carried.pointer, 12);
    store<usize>(RESULT, carried.length, 16);
  }
  return RESULT;
}

/** The host has read the answer. */
export function cabi_post_astrid_hook_trigger(result: usize): void {
  const said = action;
  if (said !== null) said.free();
  action = null;
  const carried = data;
  if (carried !== null) carried.free();
  data = null;
}
