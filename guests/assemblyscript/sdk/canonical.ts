// Strings, bytes and lists as the canonical ABI passes them: a pointer and a length.
//
// Whatever crosses the border lies in unmanaged memory (`heap`), which the garbage collector neither moves nor frees.
// What goes out is lowered by the caller and freed by it after the call. What comes in was allocated by the host
// through `cabi_realloc` and belongs to us: `take…` copies it into a managed value and frees it.
// An empty string or list has length 0, and its pointer means nothing: it is neither read nor freed.

// The largest result of the functions that the SDK imports has 32 bytes, and none is aligned to more than 8.
const RETURN_AREA: usize = memory.data(64, 8);

/** Where an imported function writes what it returns. Read it before the next call: all functions share it. */
export function returnArea(): usize {
  return RETURN_AREA;
}

/** What `cabi_realloc` does: allocate, or move an allocation to a larger place. Traps when memory is used up. */
export function reallocate(pointer: usize, size: usize, align: usize, newSize: usize): usize {
  // The heap aligns everything to 16 bytes.
  assert(align <= 16, "cabi_realloc: the alignment is at most 16");
  if (newSize == 0) {
    release(pointer, size);
    return align;
  }
  return size == 0 ? heap.alloc(newSize) : heap.realloc(pointer, newSize);
}

/** Frees what was allocated with this size. */
export function release(pointer: usize, size: usize): void {
  if (size != 0) heap.free(pointer);
}

/** A string in UTF-8 that the host may read. Half a surrogate pair becomes U+FFFD, for UTF-8 has no form for it. */
@final
@unmanaged
export class Lowered {
  pointer: usize;
  length: usize;

  static of(text: string): Lowered {
    const length = <usize>String.UTF8.byteLength(text);
    const lowered = changetype<Lowered>(heap.alloc(offsetof<Lowered>() + length));
    lowered.pointer = changetype<usize>(lowered) + offsetof<Lowered>();
    lowered.length = length;
    String.UTF8.encodeUnsafe(
      changetype<usize>(text),
      text.length,
      lowered.pointer,
      false,
      String.UTF8.ErrorMode.REPLACE,
    );
    return lowered;
  }

  free(): void {
    heap.free(changetype<usize>(this));
  }
}

/** The string at a place that holds pointer and length, without freeing it. */
export function readString(pointer: usize, length: usize): string {
  return length == 0 ? "" : String.UTF8.decodeUnsafe(pointer, length);
}

/** Copies and frees the string whose pointer and length lie at `place`. */
export function takeString(place: usize): string {
  const pointer = load<usize>(place);
  const length = load<usize>(place, sizeof<usize>());
  const text = readString(pointer, length);
  release(pointer, length);
  return text;
}

/** Copies and frees the bytes whose pointer and length lie at `place`. */
export function takeBytes(place: usize): Uint8Array {
  const pointer = load<usize>(place);
  const length = load<usize>(place, sizeof<usize>());
  const bytes = new Uint8Array(<i32>length);
  if (length != 0) memory.copy(bytes.dataStart, pointer, length);
  release(pointer, length);
  return bytes;
}

/** Copies and frees the list of strings whose pointer and length lie at `place`. */
export function takeStrings(place: usize): string[] {
  const pointer = load<usize>(place);
  const length = load<usize>(place, sizeof<usize>());
  const stride = 2 * sizeof<usize>();
  const texts = new Array<string>(<i32>length);
  for (let i: usize = 0; i < length; i++) texts[<i32>i] = takeString(pointer + i * stride);
  release(pointer, length);
  return texts;
}
