// A JSON value. Numbers keep their text, so a value that is read and written again loses no digit.

import { nearestFloat } from "./decimal";

/** What a value is. */
export enum JsonKind {
  Null,
  Boolean,
  Number,
  String,
  Array,
  Object,
}

export abstract class JsonValue {
  constructor(readonly kind: JsonKind) {}

  get isNull(): bool {
    return this.kind == JsonKind.Null;
  }

  /** The boolean, or null when this is none. */
  get asBoolean(): JsonBoolean | null {
    return this.kind == JsonKind.Boolean ? <JsonBoolean>this : null;
  }

  /** The number, or null when this is none. */
  get asNumber(): JsonNumber | null {
    return this.kind == JsonKind.Number ? <JsonNumber>this : null;
  }

  /** The text of a string, or null when this is none. */
  get asString(): string | null {
    return this.kind == JsonKind.String ? (<JsonString>this).text : null;
  }

  /** The array, or null when this is none. */
  get asArray(): JsonArray | null {
    return this.kind == JsonKind.Array ? <JsonArray>this : null;
  }

  /** The object, or null when this is none. */
  get asObject(): JsonObject | null {
    return this.kind == JsonKind.Object ? <JsonObject>this : null;
  }
}

@final
export class JsonNull extends JsonValue {
  constructor() {
    super(JsonKind.Null);
  }
}

@final
export class JsonBoolean extends JsonValue {
  constructor(readonly value: bool) {
    super(JsonKind.Boolean);
  }
}

@final
export class JsonString extends JsonValue {
  constructor(readonly text: string) {
    super(JsonKind.String);
  }
}

@final
export class JsonNumber extends JsonValue {
  /** `text` must be a number as JSON writes it; nobody checks it again. */
  constructor(readonly text: string) {
    super(JsonKind.Number);
  }

  /** The nearest 64-bit float; infinite when the number is larger than any. */
  get float(): f64 {
    return nearestFloat(this.text);
  }

  /** Whether it is a whole number from -2^63 to 2^63 - 1. `2.0` and `2e0` are whole numbers. */
  get isInteger(): bool {
    return isInteger(this.text);
  }

  /** The whole number. Ask `isInteger` first: for any other number this means nothing. */
  get integer(): i64 {
    return isPlainInteger(this.text) ? I64.parseInt(this.text) : <i64>this.float;
  }
}

@final
export class JsonArray extends JsonValue {
  readonly items: JsonValue[] = [];

  constructor() {
    super(JsonKind.Array);
  }

  get length(): i32 {
    return this.items.length;
  }

  at(index: i32): JsonValue {
    return this.items[index];
  }

  /** Appends a value of any type that `toJson` takes. */
  push<T>(value: T): this {
    this.items.push(toJson<T>(value));
    return this;
  }
}

@final
export class JsonObject extends JsonValue {
  private readonly entries: Map<string, JsonValue> = new Map<string, JsonValue>();

  constructor() {
    super(JsonKind.Object);
  }

  get size(): i32 {
    return this.entries.size;
  }

  /** The keys in the order in which they came. */
  get keys(): string[] {
    return this.entries.keys();
  }

  has(key: string): bool {
    return this.entries.has(key);
  }

  /** The value of a key, or null when there is no such key. */
  get(key: string): JsonValue | null {
    return this.entries.has(key) ? this.entries.get(key) : null;
  }

  /** Sets a key to a value of any type that `toJson` takes; one that is there already is replaced. */
  set<T>(key: string, value: T): this {
    this.entries.set(key, toJson<T>(value));
    return this;
  }
}

/**
 * The JSON value of a string, a boolean, an integer, a float, a JSON value, or an array of these. A null reference is
 * JSON's null, and so is a float that is infinite or not a number, for JSON has no form for it.
 */
export function toJson<T>(value: T): JsonValue {
  if (isReference<T>()) {
    if (changetype<usize>(value) == 0) return new JsonNull();
    if (isString<T>()) return new JsonString(changetype<string>(value));
    if (isArray<T>()) return arrayToJson<valueof<T>>(changetype<valueof<T>[]>(value));
    assert(value instanceof JsonValue, "toJson takes strings, booleans, numbers, JSON values and arrays of them");
    return changetype<JsonValue>(value);
  }
  if (isBoolean<T>()) return new JsonBoolean(<bool>value);
  if (isFloat<T>()) return isFinite(<f64>value) ? new JsonNumber((<f64>value).toString()) : new JsonNull();
  return isSigned<T>() ? new JsonNumber((<i64>value).toString()) : new JsonNumber((<u64>value).toString());
}

function arrayToJson<T>(values: T[]): JsonArray {
  const array = new JsonArray();
  for (let i = 0; i < values.length; i++) array.push<T>(values[i]);
  return array;
}

// From here on it is about the text of a number, which the grammar of JSON allows.

function isPlainInteger(text: string): bool {
  const start = text.charCodeAt(0) == 0x2d ? 1 : 0;
  const digits = text.length - start;
  if (digits > 19) return false;
  for (let i = start; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x30 || unit > 0x39) return false;
  }
  // Nineteen digits fit or not; the texts of the two bounds decide it, for texts of one length sort as numbers do.
  if (digits < 19) return true;
  return start == 0 ? text <= "9223372036854775807" : text <= "-9223372036854775808";
}

function isInteger(text: string): bool {
  if (isPlainInteger(text)) return true;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit == 0x2e || unit == 0x65 || unit == 0x45) {
      const float = nearestFloat(text);
      // A float of 2^53 or more has lost its last digits.
      return Math.floor(float) == float && Math.abs(float) <= <f64>F64.MAX_SAFE_INTEGER;
    }
  }
  return false;
}
