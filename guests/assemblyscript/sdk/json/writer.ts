// Writes JSON as UTF-8, without spaces. Only what must be escaped is escaped. Half a surrogate pair, which a string
// of AssemblyScript may hold, becomes U+FFFD.

import { MAX_DEPTH } from "./parser";
import { JsonArray, JsonBoolean, JsonKind, JsonNumber, JsonObject, JsonString, JsonValue } from "./value";

/** The JSON text of a value. Traps when it is nested deeper than 128 levels, for no host could read it. */
export function stringify(value: JsonValue): string {
  const writer = new JsonWriter();
  writer.value(value);
  return writer.toString();
}

// The longest form of one UTF-16 unit: a control character as \u00xx.
const WIDEST: i32 = 6;

@final
export class JsonWriter {
  private buffer: ArrayBuffer = new ArrayBuffer(256);
  private used: i32 = 0;

  /** Where the text lies. It moves when more is written. */
  get pointer(): usize {
    return changetype<usize>(this.buffer);
  }

  /** Bytes written so far. */
  get length(): i32 {
    return this.used;
  }

  toString(): string {
    return String.UTF8.decodeUnsafe(this.pointer, this.used);
  }

  /** ASCII text as it stands. */
  raw(text: string): void {
    this.reserve(text.length);
    let to = this.pointer + this.used;
    for (let i = 0; i < text.length; i++) store<u8>(to++, text.charCodeAt(i));
    this.used += text.length;
  }

  /** A key and its colon; a comma stands before every key but the first. */
  key(name: string, isFirst: bool = false): void {
    if (!isFirst) this.byte(0x2c);
    this.string(name);
    this.byte(0x3a);
  }

  /** Any value; `depth` is how many arrays and objects it stands in. */
  value(value: JsonValue, depth: i32 = 0): void {
    switch (value.kind) {
      case JsonKind.Null:
        return this.raw("null");
      case JsonKind.Boolean:
        return this.raw((<JsonBoolean>value).value ? "true" : "false");
      case JsonKind.Number:
        return this.raw((<JsonNumber>value).text);
      case JsonKind.String:
        return this.string((<JsonString>value).text);
    }
    assert(depth < MAX_DEPTH, "the JSON value is nested deeper than 128 levels");
    if (value.kind == JsonKind.Array) this.array(<JsonArray>value, depth + 1);
    else this.object(<JsonObject>value, depth + 1);
  }

  /** A string in quotes. */
  string(text: string): void {
    const count = text.length;
    this.byte(0x22);
    for (let i = this.plain(text, 0); i < count; i = this.plain(text, i)) i = this.special(text, i);
    this.byte(0x22);
  }

  /** Writes the units from `start` on that stand for themselves, and returns the first that does not. */
  private plain(text: string, start: i32): i32 {
    const count = text.length;
    this.reserve(count - start);
    const to = this.pointer + this.used - start;
    let i = start;
    for (; i < count; i++) {
      const unit = load<u16>(changetype<usize>(text) + ((<usize>i) << 1));
      if (unit < 0x20 || unit > 0x7f || unit == 0x22 || unit == 0x5c) break;
      store<u8>(to + i, <u8>unit);
    }
    this.used += i - start;
    return i;
  }

  /** Writes the one character at `i` that is escaped or no ASCII, and returns where the next one begins. */
  private special(text: string, i: i32): i32 {
    this.reserve(WIDEST);
    const unit = <u32>text.charCodeAt(i);
    if (unit < 0x80) {
      this.escape(<u8>unit);
    } else if (isHighSurrogate(unit) && i + 1 < text.length && isLowSurrogate(text.charCodeAt(i + 1))) {
      this.point(0x10000 + ((unit & 0x3ff) << 10) + (text.charCodeAt(i + 1) & 0x3ff));
      return i + 2;
    } else {
      this.point((unit & 0xf800) == 0xd800 ? 0xfffd : unit);
    }
    return i + 1;
  }

  private array(array: JsonArray, depth: i32): void {
    this.byte(0x5b);
    for (let i = 0; i < array.length; i++) {
      if (i > 0) this.byte(0x2c);
      this.value(array.at(i), depth);
    }
    this.byte(0x5d);
  }

  private object(object: JsonObject, depth: i32): void {
    this.byte(0x7b);
    const keys = object.keys;
    for (let i = 0; i < keys.length; i++) {
      this.key(keys[i], i == 0);
      this.value(object.get(keys[i])!, depth);
    }
    this.byte(0x7d);
  }

  private byte(byte: u8): void {
    this.reserve(1);
    this.put(byte);
  }

  private escape(byte: u8): void {
    this.put(0x5c);
    if (byte == 0x22 || byte == 0x5c) return this.put(byte);
    switch (byte) {
      case 0x08:
        return this.put(0x62);
      case 0x09:
        return this.put(0x74);
      case 0x0a:
        return this.put(0x6e);
      case 0x0c:
        return this.put(0x66);
      case 0x0d:
        return this.put(0x72);
    }
    const low = byte & 0xf;
    this.put(0x75);
    this.put(0x30);
    this.put(0x30);
    this.put(0x30 + (byte >> 4));
    this.put(low < 10 ? 0x30 + low : 0x57 + low);
  }

  private point(point: u32): void {
    if (point < 0x800) {
      this.put(<u8>(0xc0 | (point >> 6)));
    } else {
      if (point < 0x10000) {
        this.put(<u8>(0xe0 | (point >> 12)));
      } else {
        this.put(<u8>(0xf0 | (point >> 18)));
        this.put(<u8>(0x80 | ((point >> 12) & 0x3f)));
      }
      this.put(<u8>(0x80 | ((point >> 6) & 0x3f)));
    }
    this.put(<u8>(0x80 | (point & 0x3f)));
  }

  /** Writes a byte for which there is room. */
  private put(byte: u8): void {
    store<u8>(this.pointer + this.used, byte);
    this.used++;
  }

  private reserve(more: i32): void {
    const needed = this.used + more;
    const capacity = this.buffer.byteLength;
    if (needed <= capacity) return;
    const larger = new ArrayBuffer(max(needed, capacity << 1));
    memory.copy(changetype<usize>(larger), this.pointer, this.used);
    this.buffer = larger;
  }
}

function isHighSurrogate(unit: u32): bool {
  return (unit & 0xfc00) == 0xd800;
}

function isLowSurrogate(unit: u32): bool {
  return (unit & 0xfc00) == 0xdc00;
}
