// A capsule for the tests of the SDK: one tool for each thing that the SDK can do.

import {
  describeCapsule,
  handle,
  parseJson,
  schema,
  stringify,
  tool,
  Arguments,
  JsonArray,
  JsonObject,
  JsonValue,
  Outcome,
  Result,
  Verdict,
} from "@astrid-host/sdk";
import * as fs from "@astrid-host/sdk/fs";
import * as ipc from "@astrid-host/sdk/ipc";
import * as kv from "@astrid-host/sdk/kv";
import * as sys from "@astrid-host/sdk/sys";

export * from "@astrid-host/sdk/exports";

/** The value of a result as JSON, or its error as the tool's. */
function report<T>(result: Result<T>): Outcome {
  const error = result.error;
  return error === null ? Outcome.json<T>(result.value) : Outcome.error(error);
}

function encode(text: string): Uint8Array {
  return Uint8Array.wrap(String.UTF8.encode(text));
}

function decode(bytes: Uint8Array): string {
  return String.UTF8.decodeUnsafe(bytes.dataStart, bytes.byteLength);
}

describeCapsule("Tries what the SDK can do.");

tool("json_echo", "Any value.", schema().any("value", "A value."), (args: Arguments): Outcome =>
  Outcome.json<JsonValue>(args.json.get("value")!),
);

tool("json_parse", "A text.", schema().string("text", "JSON."), (args: Arguments): Outcome => {
  const parsed = parseJson(args.string("text"));
  const value = parsed.value;
  return value === null ? Outcome.error(parsed.error) : Outcome.text(stringify(value));
});

tool("json_number", "A number.", schema().any("value", "A number."), (args: Arguments): Outcome => {
  const number = args.json.get("value")!.asNumber!;
  const told = new JsonObject().set("float", number.float).set("is_integer", number.isInteger);
  if (number.isInteger) told.set("integer", number.integer.toString());
  return Outcome.json(told);
});

tool("json_write", "What AssemblyScript's values become.", schema(), (args: Arguments): Outcome => {
  const nothing: string | null = null;
  return Outcome.json(
    new JsonObject()
      .set("i64", i64.MIN_VALUE)
      .set("u64", u64.MAX_VALUE)
      .set("u8", <u8>255)
      .set("float", <f64>0.1)
      .set("infinite", Infinity)
      .set("nan", NaN)
      .set("yes", true)
      .set("none", nothing)
      .set("texts", ["a", "b"])
      .set("array", new JsonArray().push(1).push("two").push(new JsonArray())),
  );
});

tool("half_pairs", "Halves of surrogate pairs.", schema(), (args: Arguments): Outcome => {
  const pair = String.fromCodePoint(0x1f600);
  return Outcome.text("<" + pair.charAt(0) + ">" + pair + "<" + pair.charAt(1) + "><" + pair.charAt(0));
});

tool("json_nest", "Nested arrays.", schema().integer("depth", "How deep."), (args: Arguments): Outcome => {
  let value = new JsonArray();
  for (let i: i64 = 1; i < args.integer("depth"); i++) value = new JsonArray().push(value);
  return Outcome.json(value);
});

tool(
  "take_all",
  "One field of each type.",
  schema()
    .string("text", "A text.")
    .integer("whole", "A whole number.")
    .number("real", "A number.")
    .boolean("flag", "A flag.")
    .strings("list", "Texts.")
    .choice("colour", "A colour.", ["red", "green"])
    .string("maybe", "Perhaps a text.", false)
    .mutable(),
  (args: Arguments): Outcome =>
    Outcome.json(
      new JsonObject()
        .set("text", args.string("text"))
        .set("whole", args.integer("whole"))
        .set("real", args.number("real"))
        .set("flag", args.boolean("flag"))
        .set("list", args.strings("list"))
        .set("colour", args.string("colour"))
        .set("maybe", args.string("maybe", "absent"))
        .set("has_maybe", args.has("maybe")),
    ),
);

tool("fail", "Ends the call.", schema().string("message", "The last words."), (args: Arguments): Outcome => {
  assert(false, args.string("message"));
  return Outcome.text("");
});

tool("ask_failed", "Asks a failed result for its value.", schema(), (args: Arguments): Outcome =>
  Outcome.json(fs.readFile("missing").value.length),
);

tool("litter", "Leaves garbage.", schema().integer("rounds", "How often."), (args: Arguments): Outcome => {
  let length = 0;
  for (let i: i64 = 0; i < args.integer("rounds"); i++) length += new Array<i32>(1024).length;
  return Outcome.json(length);
});

tool(
  "ipc_publish",
  "Publishes.",
  schema().string("topic", "Where.").string("payload", "What."),
  (args: Arguments): Outcome => report(ipc.publish(args.string("topic"), args.string("payload"))),
);

tool("sys_log", "Logs.", schema().string("message", "What."), (args: Arguments): Outcome => {
  sys.log(sys.LogLevel.Info, args.string("message"));
  return Outcome.text("");
});

tool("sys_config", "Reads configuration.", schema().string("key", "Which."), (args: Arguments): Outcome =>
  report(sys.getConfig(args.string("key"))),
);

tool("sys_caller", "Names the caller.", schema(), (args: Arguments): Outcome => {
  const caller = sys.getCaller().value;
  return Outcome.json(
    new JsonObject()
      .set("principal", caller.principal)
      .set("source_id", caller.sourceId)
      .set("timestamp", caller.timestamp),
  );
});

tool("sys_clocks", "Reads the clocks.", schema(), (args: Arguments): Outcome =>
  Outcome.json([sys.clockMs(), sys.clockMonotonicNs()]),
);

tool("sys_random", "Random bytes.", schema().integer("length", "How many."), (args: Arguments): Outcome => {
  const random = sys.randomBytes(<u32>args.integer("length"));
  return random.ok ? Outcome.json(random.value.length) : Outcome.error(random.error!);
});

tool("kv_get", "Reads a value.", schema().string("key", "Which."), (args: Arguments): Outcome => {
  const stored = kv.get(args.string("key"));
  if (!stored.ok) return Outcome.error(stored.error!);
  const value = stored.value;
  return value === null ? Outcome.json<JsonValue | null>(null) : Outcome.json(decode(value));
});

tool(
  "kv_set",
  "Stores a value.",
  schema().string("key", "Which.").string("value", "What."),
  (args: Arguments): Outcome => report(kv.set(args.string("key"), encode(args.string("value")))),
);

tool("kv_remove", "Removes a value.", schema().string("key", "Which."), (args: Arguments): Outcome =>
  report(kv.remove(args.string("key"))),
);

tool("kv_list", "Lists keys.", schema().string("prefix", "Which."), (args: Arguments): Outcome =>
  report(kv.listKeys(args.string("prefix"))),
);

tool(
  "kv_cas",
  "Stores a value if it is as expected.",
  schema().string("key", "Which.").string("expected", "What was.", false).string("value", "What will be."),
  (args: Arguments): Outcome => {
    const expected: Uint8Array | null = args.has("expected") ? encode(args.string("expected")) : null;
    return report(kv.compareAndSet(args.string("key"), expected, encode(args.string("value"))));
  },
);

tool("fs_exists", "Looks for a file.", schema().string("path", "Which."), (args: Arguments): Outcome =>
  report(fs.exists(args.string("path"))),
);

tool("fs_list", "Lists a folder.", schema().string("path", "Which."), (args: Arguments): Outcome =>
  report(fs.readDirectory(args.string("path"))),
);

tool("fs_read", "Reads a file.", schema().string("path", "Which."), (args: Arguments): Outcome => {
  const bytes = fs.readFile(args.string("path"));
  return bytes.ok ? Outcome.text(decode(bytes.value)) : Outcome.error(bytes.error!);
});

handle("echo_event", (payload: JsonValue): Verdict => Verdict.proceed(stringify(payload)));
handle("stop_event", (payload: JsonValue): Verdict => Verdict.final());
handle("refuse_event", (payload: JsonValue): Verdict => Verdict.deny("not today"));
