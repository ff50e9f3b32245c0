// The capsule as its author declares it: tools, and handlers of other events. `exports.ts` calls `dispatch`.
//
// The convention of tools: the host calls the action `tool_execute_<name>` with the call as JSON, and the answer is an
// event on `tool.v1.execute.<name>.result`. Every call gets exactly one answer, an error when its arguments are wrong.
// The action `tool_describe` says what the tools are.

import { publishUtf8 } from "./ipc";
import { parseUtf8 } from "./json/parser";
import { toJson, JsonArray, JsonKind, JsonNull, JsonObject, JsonString, JsonValue } from "./json/value";
import { JsonWriter, stringify } from "./json/writer";
import { log, LogLevel } from "./sys";
import { Arguments, Schema } from "./schema";

const EXECUTE = "tool_execute_";
const DESCRIBE = "tool_describe";

/** What a tool answers. */
@final
export class Outcome {
  private constructor(
    readonly content: string,
    readonly isError: bool,
  ) {}

  /** A text as it stands. */
  static text(content: string): Outcome {
    return new Outcome(content, false);
  }

  /** A value as JSON text. */
  static json<T>(value: T): Outcome {
    return new Outcome(stringify(toJson<T>(value)), false);
  }

  /** The tool failed; the text tells the model why. */
  static error(content: string): Outcome {
    return new Outcome(content, true);
  }
}

/** What a handler of an event says about it. */
@final
export class Verdict {
  private constructor(
    readonly action: string,
    readonly data: string | null,
  ) {}

  /** Goes on. Where several handlers form a chain, `data` (JSON text) is the next one's payload; null leaves it. */
  static proceed(data: string | null = null): Verdict {
    return new Verdict("continue", data);
  }

  /** Goes on no further: the handlers after this one are not called. */
  static final(data: string | null = null): Verdict {
    return new Verdict("final", data);
  }

  /** The event is refused, with the reason. */
  static deny(reason: string): Verdict {
    return new Verdict("deny", reason);
  }
}

export type ToolHandler = (args: Arguments) => Outcome;
export type EventHandler = (payload: JsonValue) => Verdict;

@final
class Tool {
  /** Where the results go. */
  readonly topic: string;

  constructor(
    readonly name: string,
    readonly description: string,
    readonly schema: Schema,
    readonly handler: ToolHandler,
  ) {
    this.topic = "tool.v1.execute." + name + ".result";
  }
}

/** The tools by their actions. */
const tools = new Map<string, Tool>();
const handlers = new Map<string, EventHandler>();
let purpose = "";

/** Says in a sentence what the capsule is for. */
export function describeCapsule(description: string): void {
  purpose = description;
}

/** Declares a tool. `handler` is a function or an arrow function that captures nothing. */
export function tool(name: string, description: string, schema: Schema, handler: ToolHandler): void {
  const action = EXECUTE + name;
  assert(!tools.has(action), "the tool " + name + " is declared twice");
  tools.set(action, new Tool(name, description, schema, handler));
}

/**
 * Declares the handler of an action that the manifest's `[subscribe]` table names. Its payload is parsed JSON; an
 * empty payload is JSON's null.
 */
export function handle(action: string, handler: EventHandler): void {
  assert(!handlers.has(action), "the action " + action + " is declared twice");
  handlers.set(action, handler);
}

/** Does what the host asks for; the payload is UTF-8 in memory. */
export function dispatch(action: string, payload: usize, length: usize): Verdict {
  if (tools.has(action)) return execute(tools.get(action), payload, length);
  if (action == DESCRIBE && tools.size > 0) return describe();
  if (handlers.has(action)) return handleEvent(handlers.get(action), payload, length);
  return Verdict.deny("unknown hook action: " + action);
}

function handleEvent(handler: EventHandler, payload: usize, length: usize): Verdict {
  if (length == 0) return handler(new JsonNull());
  const parsed = parseUtf8(payload, length);
  const value = parsed.value;
  if (value === null) return Verdict.deny("failed to parse arguments: " + parsed.error);
  return handler(value);
}

function execute(tool: Tool, payload: usize, length: usize): Verdict {
  const parsed = parseUtf8(payload, length);
  const call = parsed.value;
  if (call === null) return refuse(parsed.error);
  if (call.kind != JsonKind.Object) return refuse("expected an object");
  const callId = (<JsonObject>call).get("call_id");
  if (callId === null) return refuse("missing field `call_id`");
  if (callId.kind != JsonKind.String) return refuse("field `call_id`: expected a string");
  const toolName = (<JsonObject>call).get("tool_name");
  if (toolName === null) return refuse("missing field `tool_name`");
  if (toolName.kind != JsonKind.String) return refuse("field `tool_name`: expected a string");
  const args = (<JsonObject>call).get("arguments");
  if (args === null) return refuse("missing field `arguments`");

  answer(tool, (<JsonString>callId).text, run(tool, args));
  return Verdict.proceed();
}

function run(tool: Tool, args: JsonValue): Outcome {
  const problem = tool.schema.check(args);
  if (problem !== null) return Outcome.error("failed to parse tool arguments: " + problem);
  const object = args.asObject;
  return tool.handler(new Arguments(object === null ? new JsonObject() : object));
}

function refuse(reason: string): Verdict {
  return Verdict.deny("failed to parse tool execute payload: " + reason);
}

function answer(tool: Tool, callId: string, outcome: Outcome): void {
  const writer = new JsonWriter();
  writer.raw('{"type":"tool_execute_result","call_id":');
  writer.string(callId);
  writer.raw(',"result":{"call_id":');
  writer.string(callId);
  writer.raw(',"content":');
  writer.string(outcome.content);
  writer.raw(outcome.isError ? ',"is_error":true}}' : ',"is_error":false}}');
  const error = publishUtf8(tool.topic, writer.pointer, writer.length).error;
  if (error !== null) log(LogLevel.Error, "the result of call " + callId + " is lost: " + tool.topic + ": " + error);
}

function describe(): Verdict {
  const listed = new JsonArray();
  const declared = tools.values();
  for (let i = 0; i < declared.length; i++) {
    const tool = declared[i];
    listed.push(
      new JsonObject()
        .set("name", tool.name)
        .set("description", tool.description)
        .set("input_schema", tool.schema.describe(tool.name)),
    );
  }
  const writer = new JsonWriter();
  writer.value(new JsonObject().set("description", purpose).set("tools", listed));
  const topic = "tool.v1.response.describe.self";
  const error = publishUtf8(topic, writer.pointer, writer.length).error;
  if (error !== null) log(LogLevel.Warn, "the description of the tools is lost: " + topic + ": " + error);
  return Verdict.proceed(writer.toString());
}
