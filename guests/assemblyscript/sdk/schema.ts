// What a tool takes. One list of fields does three things: it tells the model what to send (JSON Schema, draft 7), it
// checks what came before the tool runs, and it is what `Arguments` then reads without further checks.

import { JsonArray, JsonBoolean, JsonKind, JsonNumber, JsonObject, JsonString, JsonValue } from "./json/value";

enum FieldType {
  String,
  Integer,
  Number,
  Boolean,
  Strings,
  Choice,
  Any,
}

@final
class Field {
  constructor(
    readonly name: string,
    readonly description: string,
    readonly type: FieldType,
    readonly required: bool,
    readonly choices: string[],
  ) {}

  /** The field's JSON Schema. */
  describe(): JsonObject {
    const schema = new JsonObject();
    switch (this.type) {
      case FieldType.Integer:
        schema.set("type", "integer");
        break;
      case FieldType.Number:
        schema.set("type", "number");
        break;
      case FieldType.Boolean:
        schema.set("type", "boolean");
        break;
      case FieldType.Strings:
        schema.set("type", "array").set("items", new JsonObject().set("type", "string"));
        break;
      case FieldType.Choice:
        schema.set("type", "string").set("enum", this.choices);
        break;
      case FieldType.Any:
        break;
      default:
        schema.set("type", "string");
    }
    return schema.set("description", this.description);
  }

  /** Null when the value fits, else what is wrong with it. */
  check(value: JsonValue): string | null {
    if (this.accepts(value)) return null;
    return "field `" + this.name + "`: expected " + this.expectation() + ", got " + nameOf(value);
  }

  private accepts(value: JsonValue): bool {
    switch (this.type) {
      case FieldType.Integer:
        return value.kind == JsonKind.Number && (<JsonNumber>value).isInteger;
      case FieldType.Number:
        return value.kind == JsonKind.Number && isFinite((<JsonNumber>value).float);
      case FieldType.Boolean:
        return value.kind == JsonKind.Boolean;
      case FieldType.Strings:
        return isListOfStrings(value);
      case FieldType.Choice:
        return value.kind == JsonKind.String && this.choices.includes((<JsonString>value).text);
      case FieldType.Any:
        return true;
      default:
        return value.kind == JsonKind.String;
    }
  }

  private expectation(): string {
    switch (this.type) {
      case FieldType.Integer:
        return "a whole number of 64 bits";
      case FieldType.Number:
        return "a number";
      case FieldType.Boolean:
        return "a boolean";
      case FieldType.Strings:
        return "a list of strings";
      case FieldType.Choice:
        return "one of `" + this.choices.join("`, `") + "`";
      default:
        return "a string";
    }
  }
}

/** A new schema without fields. */
export function schema(): Schema {
  return new Schema();
}

@final
export class Schema {
  private readonly fields: Field[] = [];
  private isMutable: bool = false;

  /** A text. */
  string(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.String, required);
  }

  /** A whole number of 64 bits. */
  integer(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.Integer, required);
  }

  /** A number, read as a 64-bit float. */
  number(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.Number, required);
  }

  /** True or false. */
  boolean(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.Boolean, required);
  }

  /** A list of texts. */
  strings(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.Strings, required);
  }

  /** One of some texts. */
  choice(name: string, description: string, choices: string[], required: bool = true): this {
    return this.add(name, description, FieldType.Choice, required, choices);
  }

  /** Any JSON value; the tool checks it itself. */
  any(name: string, description: string, required: bool = true): this {
    return this.add(name, description, FieldType.Any, required);
  }

  /** Says that the tool changes something outside of itself, so that a client may ask the user first. */
  mutable(): this {
    this.isMutable = true;
    return this;
  }

  /** The JSON Schema of the arguments. */
  describe(title: string): JsonObject {
    const properties = new JsonObject();
    const required = new JsonArray();
    for (let i = 0; i < this.fields.length; i++) {
      const field = this.fields[i];
      properties.set(field.name, field.describe());
      if (field.required) required.push(field.name);
    }
    const described = new JsonObject()
      .set("$schema", "http://json-schema.org/draft-07/schema#")
      .set("title", title)
      .set("type", "object")
      .set("properties", properties);
    if (required.length > 0) described.set("required", required);
    if (this.isMutable) described.set("mutable", true);
    return described;
  }

  /**
   * Null when the arguments fit, else what is wrong with them. Fields that the schema does not name are ignored, and
   * a tool without fields takes whatever comes.
   */
  check(args: JsonValue): string | null {
    if (this.fields.length == 0) return null;
    if (args.kind != JsonKind.Object) return "expected an object, got " + nameOf(args);
    for (let i = 0; i < this.fields.length; i++) {
      const field = this.fields[i];
      const value = (<JsonObject>args).get(field.name);
      if (value === null) {
        if (field.required) return "missing field `" + field.name + "`";
      } else if (field.required || !value.isNull) {
        const problem = field.check(value);
        if (problem !== null) return problem;
      }
    }
    return null;
  }

  private add(name: string, description: string, type: FieldType, required: bool, choices: string[] = []): this {
    this.fields.push(new Field(name, description, type, required, choices));
    return this;
  }
}

/** Arguments that fit their schema. A field that may be absent, and is absent or null, has the value of `fallback`. */
@final
export class Arguments {
  constructor(readonly json: JsonObject) {}

  has(name: string): bool {
    const value = this.json.get(name);
    return value !== null && !value.isNull;
  }

  string(name: string, fallback: string = ""): string {
    const value = this.json.get(name);
    if (value === null) return fallback;
    const text = value.asString;
    return text === null ? fallback : text;
  }

  integer(name: string, fallback: i64 = 0): i64 {
    const value = this.json.get(name);
    if (value === null) return fallback;
    const number = value.asNumber;
    return number === null ? fallback : number.integer;
  }

  number(name: string, fallback: f64 = 0): f64 {
    const value = this.json.get(name);
    if (value === null) return fallback;
    const number = value.asNumber;
    return number === null ? fallback : number.float;
  }

  boolean(name: string, fallback: bool = false): bool {
    const value = this.json.get(name);
    if (value === null) return fallback;
    const boolean = value.asBoolean;
    return boolean === null ? fallback : boolean.value;
  }

  strings(name: string, fallback: string[] = []): string[] {
    const value = this.json.get(name);
    if (value === null) return fallback;
    const array = value.asArray;
    if (array === null) return fallback;
    const texts = new Array<string>();
    for (let i = 0; i < array.length; i++) texts.push((<JsonString>array.at(i)).text);
    return texts;
  }
}

function isListOfStrings(value: JsonValue): bool {
  const array = value.asArray;
  if (array === null) return false;
  for (let i = 0; i < array.length; i++) {
    if (array.at(i).kind != JsonKind.String) return false;
  }
  return true;
}

function nameOf(value: JsonValue): string {
  switch (value.kind) {
    case JsonKind.Null:
      return "null";
    case JsonKind.Boolean:
      return (<JsonBoolean>value).value ? "true" : "false";
    case JsonKind.Number:
      return "the number " + (<JsonNumber>value).text;
    case JsonKind.String:
      return "a string";
    case JsonKind.Array:
      return "an array";
    default:
      return "an object";
  }
}
