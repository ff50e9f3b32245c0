// A strict parser of JSON (RFC 8259) that reads UTF-8 straight out of memory. It refuses what the grammar does not
// allow, bytes that are no UTF-8, half a surrogate pair, and values nested deeper than 128 levels. Of a key that
// comes twice the last value counts.

import { JsonArray, JsonBoolean, JsonNull, JsonNumber, JsonObject, JsonString, JsonValue } from "./value";

/** The depth that is refused is one more. Deeper text is no tool call, and recursion needs a bound. */
export const MAX_DEPTH: i32 = 128;

/** What came of parsing: a value, or what is wrong with the text and where. */
@final
export class Parsed {
  constructor(
    readonly value: JsonValue | null,
    readonly error: string,
  ) {}
}

/** Parses a text. Never traps: what is wrong with the text is in the answer. */
export function parseJson(text: string): Parsed {
  const bytes = String.UTF8.encode(text);
  return parseUtf8(changetype<usize>(bytes), bytes.byteLength);
}

/** Parses bytes in UTF-8. */
export function parseJsonBytes(bytes: Uint8Array): Parsed {
  return parseUtf8(bytes.dataStart, bytes.byteLength);
}

/** Parses UTF-8 in memory. */
export function parseUtf8(pointer: usize, length: usize): Parsed {
  const parser = new Parser(pointer, pointer + length);
  const value = parser.document();
  return new Parsed(value, parser.error);
}

@final
class Parser {
  error: string = "";
  private at: usize;

  constructor(
    private readonly start: usize,
    private readonly end: usize,
  ) {
    this.at = start;
  }

  document(): JsonValue | null {
    this.skipSpace();
    const value = this.value(0);
    if (value === null) return null;
    this.skipSpace();
    if (this.at < this.end) return this.fail("unexpected text after the value");
    return value;
  }

  private value(depth: i32): JsonValue | null {
    const byte = this.peek();
    if (byte == 0x22) {
      const text = this.string();
      return text === null ? null : new JsonString(text);
    }
    if (byte == 0x7b) return this.object(depth + 1);
    if (byte == 0x5b) return this.array(depth + 1);
    if (byte == 0x2d || isDigit(byte)) return this.number();
    if (this.word("true")) return new JsonBoolean(true);
    if (this.word("false")) return new JsonBoolean(false);
    if (this.word("null")) return new JsonNull();
    return this.fail(this.at < this.end ? "expected a value" : "the text ends where a value should be");
  }

  private object(depth: i32): JsonValue | null {
    if (depth > MAX_DEPTH) return this.tooDeep();
    const object = new JsonObject();
    this.at++;
    this.skipSpace();
    if (this.take(0x7d)) return object;
    while (true) {
      if (this.peek() != 0x22) return this.fail("expected a key in quotes");
      const key = this.string();
      if (key === null) return null;
      this.skipSpace();
      if (!this.take(0x3a)) return this.fail("expected `:` after a key");
      this.skipSpace();
      const value = this.value(depth);
      if (value === null) return null;
      object.set<JsonValue>(key, value);
      this.skipSpace();
      if (this.take(0x7d)) return object;
      if (!this.take(0x2c)) return this.fail("expected `,` or `}`");
      this.skipSpace();
    }
  }

  private array(depth: i32): JsonValue | null {
    if (depth > MAX_DEPTH) return this.tooDeep();
    const array = new JsonArray();
    this.at++;
    this.skipSpace();
    if (this.take(0x5d)) return array;
    while (true) {
      const value = this.value(depth);
      if (value === null) return null;
      array.items.push(value);
      this.skipSpace();
      if (this.take(0x5d)) return array;
      if (!this.take(0x2c)) return this.fail("expected `,` or `]`");
      this.skipSpace();
    }
  }

  private number(): JsonValue | null {
    const start = this.at;
    this.take(0x2d);
    if (!this.take(0x30) && !this.digits()) return this.fail("expected a digit");
    if (this.take(0x2e) && !this.digits()) return this.fail("expected a digit after the point");
    if (this.take(0x65) || this.take(0x45)) {
      if (!this.take(0x2b)) this.take(0x2d);
      if (!this.digits()) return this.fail("expected a digit in the exponent");
    }
    return new JsonNumber(String.UTF8.decodeUnsafe(start, this.at - start));
  }

  private digits(): bool {
    const start = this.at;
    while (isDigit(this.peek())) this.at++;
    return this.at > start;
  }

  /** A string in quotes. The first pass checks and counts, the second writes into a string of just that size. */
  private string(): string | null {
    const first = ++this.at;
    let units = 0;
    while (true) {
      const plainEnd = skipPlain(this.at, this.end);
      units += <i32>(plainEnd - this.at);
      this.at = plainEnd;
      if (this.at >= this.end) return this.failString("the text ends inside a string");
      const byte = load<u8>(this.at);
      if (byte == 0x22) break;
      if (byte == 0x5c) {
        const width = this.escapeWidth();
        if (width == 0) return null;
        units += width > 6 ? 2 : 1;
        this.at += width;
      } else if (byte < 0x20) {
        return this.failString("a control character in a string must be escaped");
      } else {
        const width = utf8Width(this.at, this.end);
        if (width == 0) return this.failString("the bytes are no UTF-8");
        units += width == 4 ? 2 : 1;
        this.at += width;
      }
    }
    const text = changetype<string>(__new((<usize>units) << 1, idof<string>()));
    writeUnits(first, this.at, changetype<usize>(text));
    this.at++;
    return text;
  }

  /** How many bytes an escape has: 2, 6, or 12 for a pair; 0 when it is wrong. */
  private escapeWidth(): i32 {
    const letter: u8 = this.at + 1 < this.end ? load<u8>(this.at, 1) : 0;
    if (letter != 0x75) {
      if (simpleEscape(letter) != 0) return 2;
      this.failString("unknown escape in a string");
      return 0;
    }
    const unit = hexUnit(this.at + 2, this.end);
    if (unit < 0) {
      this.failString("expected four hexadecimal digits after `\\u`");
      return 0;
    }
    if ((unit & 0xf800) != 0xd800) return 6;
    const isPair =
      unit < 0xdc00 &&
      this.at + 8 <= this.end &&
      load<u16>(this.at, 6) == 0x755c &&
      (hexUnit(this.at + 8, this.end) & ~0x3ff) == 0xdc00;
    if (isPair) return 12;
    this.failString("half of a surrogate pair in a string");
    return 0;
  }

  private word(word: string): bool {
    const length = <usize>word.length;
    if (this.end - this.at < length) return false;
    for (let i: usize = 0; i < length; i++) {
      if (load<u8>(this.at + i) != <u8>word.charCodeAt(<i32>i)) return false;
    }
    this.at += length;
    return true;
  }

  private skipSpace(): void {
    while (this.at < this.end) {
      const byte = load<u8>(this.at);
      if (byte != 0x20 && byte != 0x0a && byte != 0x0d && byte != 0x09) return;
      this.at++;
    }
  }

  /** The next byte; 0 at the end, which no rule of the grammar accepts. */
  private peek(): u8 {
    return this.at < this.end ? load<u8>(this.at) : 0;
  }

  private take(byte: u8): bool {
    if (this.peek() != byte) return false;
    this.at++;
    return true;
  }

  private tooDeep(): JsonValue | null {
    return this.fail("nested deeper than " + MAX_DEPTH.toString() + " levels");
  }

  private fail(what: string): JsonValue | null {
    let line = 1;
    let lineStart = this.start;
    for (let i = this.start; i < this.at; i++) {
      if (load<u8>(i) == 0x0a) {
        line++;
        lineStart = i + 1;
      }
    }
    const column = this.at - lineStart + 1;
    this.error = what + " at line " + line.toString() + " column " + column.toString();
    return null;
  }

  private failString(what: string): string | null {
    this.fail(what);
    return null;
  }
}

/** Where the ASCII characters end that stand for themselves in a string. */
function skipPlain(at: usize, end: usize): usize {
  for (; at < end; at++) {
    const byte = load<u8>(at);
    if (byte < 0x20 || byte > 0x7f || byte == 0x22 || byte == 0x5c) break;
  }
  return at;
}

/** Writes checked string text as UTF-16. */
function writeUnits(from: usize, end: usize, to: usize): void {
  while (from < end) {
    const byte = load<u8>(from);
    if (byte == 0x5c) {
      const letter = load<u8>(from, 1);
      const isUnicode = letter == 0x75;
      store<u16>(to, isUnicode ? <u16>hexUnit(from + 2, end) : simpleEscape(letter));
      from += isUnicode ? 6 : 2;
      to += 2;
    } else if (byte < 0x80) {
      store<u16>(to, byte);
      from++;
      to += 2;
    } else {
      const width = leadWidth(byte);
      const point = codePoint(from, width);
      if (width == 4) {
        store<u16>(to, <u16>(0xd7c0 + (point >> 10)));
        store<u16>(to, <u16>(0xdc00 | (point & 0x3ff)), 2);
        to += 4;
      } else {
        store<u16>(to, <u16>point);
        to += 2;
      }
      from += width;
    }
  }
}

/** What the letter after a backslash stands for; 0 when it is no escape. */
function simpleEscape(letter: u8): u16 {
  switch (letter) {
    case 0x22:
    case 0x5c:
    case 0x2f:
      return letter;
    case 0x62:
      return 0x08;
    case 0x66:
      return 0x0c;
    case 0x6e:
      return 0x0a;
    case 0x72:
      return 0x0d;
    case 0x74:
      return 0x09;
  }
  return 0;
}

/** Four hexadecimal digits; -1 when they are not there. */
function hexUnit(at: usize, end: usize): i32 {
  if (at + 4 > end) return -1;
  let unit = 0;
  for (let i: usize = 0; i < 4; i++) {
    const byte = load<u8>(at + i);
    const letter = byte | 0x20;
    if (isDigit(byte)) unit = (unit << 4) | (byte - 0x30);
    else if (letter >= 0x61 && letter <= 0x66) unit = (unit << 4) | (letter - 0x57);
    else return -1;
  }
  return unit;
}

function isDigit(byte: u8): bool {
  return byte >= 0x30 && byte <= 0x39;
}

/** How many bytes the first byte of a character announces; 0 when no character begins with it. */
function leadWidth(byte: u8): i32 {
  if (byte < 0xc2) return 0;
  if (byte < 0xe0) return 2;
  if (byte < 0xf0) return 3;
  return byte < 0xf5 ? 4 : 0;
}

/** How many bytes the character has, which is not ASCII; 0 when it is no UTF-8. */
function utf8Width(at: usize, end: usize): i32 {
  const width = leadWidth(load<u8>(at));
  if (width == 0 || at + width > end) return 0;
  for (let i: usize = 1; i < <usize>width; i++) {
    if ((load<u8>(at + i) & 0xc0) != 0x80) return 0;
  }
  const point = codePoint(at, width);
  if (width == 3 && (point < 0x800 || (point & 0xf800) == 0xd800)) return 0;
  if (width == 4 && (point < 0x10000 || point > 0x10ffff)) return 0;
  return width;
}

function codePoint(at: usize, width: i32): u32 {
  let point = (<u32>load<u8>(at)) & (0x7f >> width);
  for (let i: usize = 1; i < <usize>width; i++) point = (point << 6) | (load<u8>(at + i) & 0x3f);
  return point;
}
