// Tests of the SDK, through the capsule sdk-probe. Run with `npm test`.

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Guest, HostError } from "./guest.mjs";

const FILE = join(dirname(fileURLToPath(import.meta.url)), "..", "build", "sdk-probe.wasm");
const load = () => Guest.load(FILE);

const VALUES = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  1e300,
  "",
  "plain",
  'quotes " and \\ and / and \b\f\n\r\t\u0000\u001f\u007f',
  "é ß 漢 😀 \u2028 \uffff \u{10ffff}",
  [],
  {},
  [[], {}, [null, [1, [2]]]],
  { a: 1, b: { c: [true] }, "": "empty key", ключ: "é" },
];

test("a value that is read and written again is the same", async () => {
  const guest = await load();
  for (const value of VALUES) assert.deepEqual(JSON.parse(guest.tool("json_echo", { value }).content), value);
});

test("every code point survives, as it is and as an escape", async () => {
  const guest = await load();
  for (let first = 0; first < 0x110000; first += 0x1000) {
    let text = "";
    let escaped = "";
    for (let point = first; point < first + 0x1000; point += 1) {
      if (point >= 0xd800 && point < 0xe000) continue;
      const character = String.fromCodePoint(point);
      text += character;
      for (let i = 0; i < character.length; i++) {
        escaped += `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
      }
    }
    assert.equal(JSON.parse(guest.tool("json_echo", { value: text }).content), text);
    assert.equal(JSON.parse(guest.tool("json_parse", { text: `"${escaped}"` }).content), text);
    assert.equal(
      JSON.parse(guest.tool("json_parse", { text: `"${escaped.toUpperCase().replaceAll("U", "u")}"` }).content),
      text,
    );
  }
});

test("numbers keep their digits", async () => {
  const guest = await load();
  for (const text of ["0", "-0", "1.10", "1e5", "1E+5", "1e-5", "123456789012345678901234567890", "0.1e00"]) {
    assert.equal(guest.tool("json_parse", { text }).content, text);
  }
});

test("a number is the float that JavaScript reads", async () => {
  const guest = await load();
  const texts = [
    "0.1",
    "1e23",
    "5e-324",
    "2.2250738585072014e-308",
    "2.2250738585072011e-308",
    "9007199254740993",
    "-0.3",
  ];
  texts.push("2.4703282292062327e-324", "2.4703282292062328e-324", "1.7976931348623157e308", "1e22", "1e-22", "1e-400");
  // Beside the midpoint of two floats a digit far behind decides.
  const middle = "9007199254740993";
  texts.push(`${middle}.${"0".repeat(900)}`, `${middle}.${"0".repeat(900)}1`, `${middle}${"0".repeat(250)}`);
  texts.push(`0.${"0".repeat(400)}${"3".repeat(900)}e390`, `${"7".repeat(1200)}e-1190`, `1${"0".repeat(5000)}e-5000`);
  for (let i = 0; i < 5000; i++) {
    const bits = new BigUint64Array(crypto.getRandomValues(new Uint8Array(8)).buffer);
    const float = new Float64Array(bits.buffer)[0];
    if (!Number.isFinite(float)) continue;
    texts.push(String(float), float.toPrecision(25), float.toPrecision(16));
  }
  for (const text of texts) {
    assert.equal(numberOf(guest, text).float, Number(text), text);
  }
  // JSON has no infinite number: what is too large is written as null.
  for (const text of ["1e309", "-1e999999999999", "1.7976931348623159e308"])
    assert.equal(numberOf(guest, text).float, null);
});

test("what is a whole number of 64 bits is told exactly", async () => {
  const guest = await load();
  const whole = { 0: "0", "-0": "0", "2.0": "2", "2e3": "2000", "-1.5e1": "-15" };
  whole["9223372036854775807"] = "9223372036854775807";
  whole["-9223372036854775808"] = "-9223372036854775808";
  for (const [text, integer] of Object.entries(whole)) {
    assert.equal(numberOf(guest, text).integer, integer, text);
  }
  for (const text of ["9223372036854775808", "-9223372036854775809", "1.5", "1e-1", "1e300", "1e999", "1".repeat(40)]) {
    assert.equal(numberOf(guest, text).is_integer, false, text);
  }
});

function numberOf(guest, text) {
  const call = `{"call_id":"c","tool_name":"json_number","arguments":{"value":${text}}}`;
  guest.trigger("tool_execute_json_number", call);
  return JSON.parse(JSON.parse(guest.published.at(-1).payload).result.content);
}

test("text that is no JSON is refused, with its place", async () => {
  const guest = await load();
  const wrong = [
    "",
    " ",
    "{",
    "[",
    "[1,]",
    "{,}",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    "{a:1}",
    "01",
    "-",
    "1.",
    ".5",
    "1e",
    "+1",
    "tru",
    "nulll",
  ];
  wrong.push(
    "NaN",
    "Infinity",
    "'a'",
    '"',
    '"\\x"',
    '"\\u12g4"',
    '"\\u123',
    '"\t"',
    '"\\ud800"',
    '"\\ud800\\u0041"',
    '"\\udc00"',
    '"\\',
    "[1 2]",
    "1 2",
    "\ufeff1",
  );
  for (const text of wrong) {
    const { content, is_error } = guest.tool("json_parse", { text });
    assert.ok(is_error, text);
    assert.match(content, /at line 1 column \d+$/);
    assert.throws(() => JSON.parse(text) && assert.doesNotMatch(text, /ud[8c]00/));
  }
  assert.equal(guest.tool("json_parse", { text: "[1,\n 2,\n x]" }).content, "expected a value at line 3 column 2");
});

test("of a key that comes twice the last value counts", async () => {
  const guest = await load();
  assert.equal(guest.tool("json_parse", { text: '{"a":1,"b":2,"a":3}' }).content, '{"a":3,"b":2}');
});

test("128 levels are read and written, 129 are not", async () => {
  const guest = await load();
  const nested = (depth) => "[".repeat(depth) + "]".repeat(depth);
  assert.equal(guest.tool("json_parse", { text: nested(128) }).content, nested(128));
  assert.match(guest.tool("json_parse", { text: nested(129) }).content, /nested deeper than 128 levels/);
  assert.match(guest.tool("json_parse", { text: '{"a":'.repeat(100000) }).content, /nested deeper than 128 levels/);
  assert.equal(guest.tool("json_nest", { depth: 128 }).content, nested(128));
  assert.throws(
    () => guest.tool("json_nest", { depth: 129 }),
    /abort: the JSON value is nested deeper than 128 levels/,
  );
});

test("bytes that are no UTF-8 are refused", async () => {
  const guest = await load();
  const head = new TextEncoder().encode('{"call_id":"c","tool_name":"t","arguments":{"value":"');
  const tail = new TextEncoder().encode('"}}');
  const wrong = [[0x80], [0xc0, 0x80], [0xc3], [0xe0, 0x80, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x80, 0x80]];
  for (const bytes of [...wrong, [0xf4, 0x90, 0x80, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xff], [0xe2, 0x82]]) {
    const answer = guest.trigger("tool_execute_json_echo", new Uint8Array([...head, ...bytes, ...tail]));
    assert.equal(answer.action, "deny");
    assert.match(answer.data, /^failed to parse tool execute payload: the bytes are no UTF-8/);
  }
});

test("the values of AssemblyScript become JSON", async () => {
  const guest = await load();
  assert.equal(
    guest.tool("json_write").content,
    '{"i64":-9223372036854775808,"u64":18446744073709551615,"u8":255,"float":0.1,"infinite":null,"nan":null,' +
      '"yes":true,"none":null,"texts":["a","b"],"array":[1,"two",[]]}',
  );
});

test("half of a surrogate pair leaves as U+FFFD", async () => {
  assert.equal((await load()).tool("half_pairs").content, "<\ufffd>😀<\ufffd><\ufffd");
});

test("arguments are checked before the tool runs", async () => {
  const guest = await load();
  const right = { text: "t", whole: 1, real: 0.5, flag: true, list: ["a"], colour: "red" };
  const read = JSON.parse(guest.tool("take_all", right).content);
  assert.deepEqual(read, { ...right, maybe: "absent", has_maybe: false });
  assert.equal(JSON.parse(guest.tool("take_all", { ...right, maybe: "m" }).content).maybe, "m");
  assert.equal(JSON.parse(guest.tool("take_all", { ...right, maybe: null }).content).has_maybe, false);
  assert.equal(guest.tool("take_all", { ...right, stranger: 1 }).is_error, false);
  const wrong = {
    text: [1, null, {}],
    whole: [1.5, "1", null, 1e300],
    real: ["x", false],
    flag: [0, "true"],
    list: ["a", [1], null, {}],
    colour: ["blue", 1],
    maybe: [1],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) {
      const { content, is_error } = guest.tool("take_all", { ...right, [name]: value });
      assert.ok(is_error);
      assert.ok(content.startsWith(`failed to parse tool arguments: field \`${name}\`: expected `), content);
    }
    const { [name]: _, ...rest } = right;
    if (name === "maybe") continue;
    assert.equal(guest.tool("take_all", rest).content, `failed to parse tool arguments: missing field \`${name}\``);
  }
  for (const args of [null, "text", [1], 5]) {
    assert.match(guest.tool("take_all", args).content, /^failed to parse tool arguments: expected an object, got /);
  }
  assert.equal(guest.tool("half_pairs", null).is_error, false);
});

test("the schema tells types, choices, what is required, and that a tool is mutable", async () => {
  const guest = await load();
  const { action, data } = guest.trigger("tool_describe", "{}");
  assert.equal(action, "continue");
  assert.deepEqual(guest.published, [{ topic: "tool.v1.response.describe.self", payload: data }]);
  const { description, tools } = JSON.parse(data);
  assert.equal(description, "Tries what the SDK can do.");
  const { input_schema: schema } = tools.find(({ name }) => name === "take_all");
  assert.deepEqual(schema, {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "take_all",
    type: "object",
    properties: {
      text: { type: "string", description: "A text." },
      whole: { type: "integer", description: "A whole number." },
      real: { type: "number", description: "A number." },
      flag: { type: "boolean", description: "A flag." },
      list: { type: "array", items: { type: "string" }, description: "Texts." },
      colour: { type: "string", enum: ["red", "green"], description: "A colour." },
      maybe: { type: "string", description: "Perhaps a text." },
    },
    required: ["text", "whole", "real", "flag", "list", "colour"],
    mutable: true,
  });
});

test("a handler of another event goes on, ends a chain, or refuses", async () => {
  const guest = await load();
  assert.deepEqual(guest.trigger("echo_event", ' {"a": [1]} '), { action: "continue", data: '{"a":[1]}' });
  assert.deepEqual(guest.trigger("echo_event", ""), { action: "continue", data: "null" });
  assert.deepEqual(guest.trigger("stop_event"), { action: "final", data: null });
  assert.deepEqual(guest.trigger("refuse_event"), { action: "deny", data: "not today" });
  assert.equal(guest.trigger("echo_event", "{").data.slice(0, 29), "failed to parse arguments: ex");
  assert.deepEqual(guest.trigger(""), { action: "deny", data: "unknown hook action: " });
});

test("a failed assertion ends the call with its message and place", async () => {
  const guest = await load();
  assert.throws(() => guest.tool("fail", { message: "größer 😀" }), /abort: größer 😀 at assembly\/index.ts:\d+:\d+/);
  assert.throws(() => guest.tool("ask_failed"), /abort: the result has no value, it failed: not-found/);
});

test("a publish that is refused tells its case", async () => {
  const guest = await load();
  const cases = ["capability-denied", "invalid-input", "closed", "rate-limited", "backpressure", "quota", "timeout"];
  const { publish } = guest.answers;
  const refuse = (error) => {
    guest.answers.publish = (topic, payload) => {
      if (topic === "t") throw error;
      publish(topic, payload);
    };
    return guest.tool("ipc_publish", { topic: "t", payload: "{}" });
  };
  cases.forEach((name, i) =>
    assert.deepEqual(refuse(new HostError(i)), { call_id: "c1", content: name, is_error: true }),
  );
  assert.equal(refuse(new HostError(7, "böse")).content, "unknown: böse");
  assert.equal(guest.tool("ipc_publish", { topic: "other", payload: '"é"' }).content, "true");
  assert.deepEqual(guest.published.at(-2), { topic: "other", payload: '"é"' });
});

test("a lost result is logged as an error, a lost description as a warning", async () => {
  const guest = await load();
  guest.answers.publish = () => {
    throw new HostError(0);
  };
  assert.throws(() => guest.tool("half_pairs"), /0 results/);
  assert.equal(guest.trigger("tool_describe").action, "continue");
  assert.deepEqual(guest.logged, [
    [4, "the result of call c1 is lost: tool.v1.execute.half_pairs.result: capability-denied"],
    [3, "the description of the tools is lost: tool.v1.response.describe.self: capability-denied"],
  ]);
});

test("log, configuration, caller, clocks and random bytes", async () => {
  const guest = await load();
  guest.tool("sys_log", { message: "hé" });
  assert.deepEqual(guest.logged, [[2, "hé"]]);
  guest.answers.config = (key) => ({ empty: "", full: "wert ü" })[key] ?? null;
  assert.equal(guest.tool("sys_config", { key: "full" }).content, '"wert ü"');
  assert.equal(guest.tool("sys_config", { key: "empty" }).content, '""');
  assert.equal(guest.tool("sys_config", { key: "none" }).content, "null");
  assert.deepEqual(JSON.parse(guest.tool("sys_caller").content), {
    principal: "alice",
    source_id: "id",
    timestamp: "now",
  });
  guest.answers.caller = () => ({ principal: null, sourceId: "", timestamp: "" });
  assert.deepEqual(JSON.parse(guest.tool("sys_caller").content), { principal: null, source_id: "", timestamp: "" });
  assert.equal(guest.tool("sys_clocks").content, "[1785499200000,18446744073709551615]");
  assert.equal(guest.tool("sys_random", { length: 33 }).content, "33");
  guest.answers.random = () => {
    throw new HostError(2);
  };
  assert.deepEqual(guest.tool("sys_random", { length: 5000 }), { call_id: "c1", content: "too-large", is_error: true });
});

test("values are stored, read, listed, replaced and removed", async () => {
  const guest = await load();
  const kv = (name, args) => guest.tool(`kv_${name}`, args).content;
  assert.equal(kv("get", { key: "a" }), "null");
  assert.equal(kv("set", { key: "a", value: "ä" }), "true");
  assert.equal(kv("set", { key: "b", value: "" }), "true");
  assert.equal(kv("get", { key: "a" }), '"ä"');
  assert.equal(kv("get", { key: "b" }), '""');
  assert.equal(kv("list", { prefix: "" }), '["a","b"]');
  assert.equal(kv("list", { prefix: "z" }), "[]");
  assert.equal(kv("cas", { key: "a", expected: "x", value: "y" }), "false");
  assert.equal(kv("cas", { key: "a", expected: "ä", value: "y" }), "true");
  assert.equal(kv("cas", { key: "a", value: "z" }), "false");
  assert.equal(kv("cas", { key: "c", value: "z" }), "true");
  assert.equal(kv("remove", { key: "a" }), "true");
  assert.equal(kv("get", { key: "a" }), "null");
  for (const name of ["get", "remove"]) assert.equal(kv(name, { key: "" }), "invalid-key");
  assert.equal(kv("cas", { key: "", value: "" }), "invalid-key");
});

test("files are found, listed and read", async () => {
  const guest = await load();
  guest.answers.files.set("f", "ein\0zwei é").set("d", "x\ny\n").set("empty", "");
  assert.equal(guest.tool("fs_exists", { path: "f" }).content, "true");
  assert.equal(guest.tool("fs_exists", { path: "g" }).content, "false");
  assert.equal(guest.tool("fs_read", { path: "f" }).content, "ein\0zwei é");
  assert.equal(guest.tool("fs_read", { path: "empty" }).content, "");
  assert.equal(guest.tool("fs_read", { path: "g" }).content, "not-found");
  assert.equal(guest.tool("fs_list", { path: "d" }).content, '["x","y",""]');
  assert.equal(guest.tool("fs_list", { path: "g" }).content, "not-found");
});

test("memory stays flat, whatever is called", async () => {
  const guest = await load();
  guest.answers.files.set("d", "name\n".repeat(50)).set("f", "x".repeat(5000));
  const round = (i) => {
    guest.tool("json_echo", { value: VALUES });
    guest.tool("kv_set", { key: `k${i % 20}`, value: "v".repeat(3000) });
    guest.tool("kv_get", { key: `k${i % 20}` });
    guest.tool("kv_list", { prefix: "k" });
    guest.tool("kv_cas", { key: "k1", expected: "w", value: "v" });
    guest.tool("fs_list", { path: "d" });
    guest.tool("fs_read", { path: "f" });
    guest.tool("fs_read", { path: "missing" });
    guest.tool("sys_caller");
    guest.tool("sys_config", { key: "none" });
    guest.tool("sys_random", { length: 4096 });
    guest.trigger("tool_describe");
    guest.trigger("nonsense", "x".repeat(2000));
    guest.published.length = 0;
  };
  for (let i = 0; i < 200; i++) round(i);
  const { pages } = guest;
  for (let i = 0; i < 3000; i++) round(i);
  assert.equal(guest.pages, pages);
});

test("garbage of a long call is collected while it runs", async () => {
  const guest = await load();
  // 400 MB in all.
  assert.equal(guest.tool("litter", { rounds: 100_000 }).content, String(100_000 * 1024));
  assert.ok(guest.pages < 16);
});
