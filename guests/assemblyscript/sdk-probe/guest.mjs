// A host in small for the tests of the SDK: it loads a capsule and speaks the canonical ABI with it.

import { readFileSync } from "node:fs";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** What a host function throws to answer with an error case of its WIT enum. */
export class HostError {
  constructor(index, text = null) {
    Object.assign(this, { index, text });
  }
}

export class Guest {
  /** What the guest did: `{topic, payload}` of each publish, `[level, message]` of each line logged. */
  published = [];
  logged = [];
  /** The fake's answers; a test replaces what it needs. Each returns a value or throws a HostError. */
  answers = {
    publish: (topic, payload) => void this.published.push({ topic, payload }),
    config: () => null,
    caller: () => ({ principal: "alice", sourceId: "id", timestamp: "now" }),
    random: (length) => new Uint8Array(length),
    kv: new Map(),
    files: new Map(),
  };

  static async load(file) {
    const guest = new Guest();
    const module = await WebAssembly.compile(readFileSync(file));
    guest.imports = WebAssembly.Module.imports(module).map(({ module, name }) => `${module} ${name}`);
    guest.exports = (await WebAssembly.instantiate(module, guest.#functions())).exports;
    return guest;
  }

  /** Calls an action and returns `{action, data}`. */
  trigger(action, payload = "") {
    const one = this.#lower(encoder.encode(action));
    const two = this.#lower(typeof payload === "string" ? encoder.encode(payload) : payload);
    const result = this.exports["astrid-hook-trigger"](...one, ...two);
    const answer = { action: this.#textAt(result), data: this.#u32(result + 8) ? this.#textAt(result + 12) : null };
    this.exports["cabi_post_astrid-hook-trigger"](result);
    return answer;
  }

  /** Calls a tool and returns the one result that it published: `{call_id, content, is_error}`. */
  tool(name, args = {}) {
    const before = this.published.length;
    const answer = this.trigger(
      `tool_execute_${name}`,
      JSON.stringify({ call_id: "c1", tool_name: name, arguments: args }),
    );
    if (answer.action !== "continue") throw new Error(`${answer.action}: ${answer.data}`);
    const results = this.published.slice(before).filter(({ topic }) => topic === `tool.v1.execute.${name}.result`);
    if (results.length !== 1) throw new Error(`${results.length} results`);
    return JSON.parse(results[0].payload).result;
  }

  get pages() {
    return this.exports.memory.buffer.byteLength / 65536;
  }

  #view() {
    return new DataView(this.exports.memory.buffer);
  }

  #u32(at) {
    return this.#view().getUint32(at, true);
  }

  #bytes(pointer, length) {
    return new Uint8Array(this.exports.memory.buffer, pointer, length).slice();
  }

  #text(pointer, length) {
    return decoder.decode(this.#bytes(pointer, length));
  }

  #textAt(place) {
    return this.#text(this.#u32(place), this.#u32(place + 4));
  }

  /** Bytes in new memory of the guest: pointer and length. */
  #lower(bytes, align = 1) {
    const pointer = this.exports.cabi_realloc(0, 0, align, bytes.length);
    if (pointer === 0 || pointer % align !== 0) throw new Error(`cabi_realloc gave ${pointer}`);
    new Uint8Array(this.exports.memory.buffer).set(bytes, pointer);
    return [pointer, bytes.length];
  }

  #store(place, words) {
    words.forEach((word, i) => this.#view().setUint32(place + 4 * i, word, true));
  }

  #lowerText(text) {
    return this.#lower(encoder.encode(text));
  }

  #lowerTexts(texts) {
    const words = texts.flatMap((text) => this.#lowerText(text));
    const [pointer] = this.#lower(new Uint8Array(4 * words.length), 4);
    this.#store(pointer, words);
    return [pointer, texts.length];
  }

  /** Answers at `area`: 0 and the words that `lower` gives for the value, or 1 and the error. */
  #answer(area, ask, lower) {
    // What is not written must not matter.
    new Uint8Array(this.exports.memory.buffer).fill(0xaa, area, area + 16);
    try {
      const words = lower(ask());
      this.#view().setUint8(area, 0);
      this.#store(area + 4, words);
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      this.#view().setUint8(area, 1);
      this.#view().setUint8(area + 4, error.index);
      if (error.text !== null) this.#store(area + 8, this.#lowerText(error.text));
    }
  }

  #functions() {
    const nothing = () => [];
    const optional = (lower) => (value) => (value === null ? [0] : [1, ...lower(value)]);
    const texts = (value) => this.#lowerTexts(value);
    const text = (value) => this.#lowerText(value);
    const bytes = (value) => this.#lower(value);
    const { answers } = this;
    const file = (path) => {
      if (!answers.files.has(path)) throw new HostError(0);
      return answers.files.get(path);
    };
    const key = (p, n) => {
      if (n === 0) throw new HostError(0);
      return this.#text(p, n);
    };
    return {
      env: {
        abort: (message, file, line, column) => {
          const utf16 = (p) => Buffer.from(this.#bytes(p, this.#u32(p - 4))).toString("utf16le");
          throw new Error(`abort: ${utf16(message)} at ${utf16(file)}:${line}:${column}`);
        },
      },
      "astrid:ipc/host@1.0.0": {
        publish: (tp, tn, pp, pn, area) =>
          this.#answer(area, () => answers.publish(this.#text(tp, tn), this.#text(pp, pn)), nothing),
      },
      "astrid:sys/host@1.0.0": {
        log: (level, p, n) => void this.logged.push([level, this.#text(p, n)]),
        "get-config": (p, n, area) => this.#answer(area, () => answers.config(this.#text(p, n)), optional(text)),
        "get-caller": (area) => {
          const { principal, sourceId, timestamp } = answers.caller();
          this.#answer(
            area,
            () => null,
            () => [
              ...(principal === null ? [0, 0, 0] : [1, ...text(principal)]),
              ...text(sourceId),
              ...text(timestamp),
            ],
          );
        },
        "clock-ms": () => 1785499200000n,
        "clock-monotonic-ns": () => (1n << 64n) - 1n,
        "random-bytes": (length, area) => this.#answer(area, () => answers.random(Number(length)), bytes),
      },
      "astrid:kv/host@1.0.0": {
        "kv-get": (p, n, area) => this.#answer(area, () => answers.kv.get(key(p, n)) ?? null, optional(bytes)),
        "kv-set": (p, n, vp, vn, area) =>
          this.#answer(area, () => answers.kv.set(key(p, n), this.#bytes(vp, vn)), nothing),
        "kv-delete": (p, n, area) => this.#answer(area, () => answers.kv.delete(key(p, n)), nothing),
        "kv-list-keys": (p, n, area) => {
          const prefix = this.#text(p, n);
          this.#answer(area, () => [...answers.kv.keys()].filter((key) => key.startsWith(prefix)).sort(), texts);
        },
        "kv-cas": (p, n, some, ep, en, vp, vn, area) =>
          this.#answer(
            area,
            () => {
              const held = answers.kv.get(key(p, n)) ?? null;
              const expected = some ? this.#bytes(ep, en) : null;
              const fits =
                held === null || expected === null ? held === expected : Buffer.compare(held, expected) === 0;
              if (!fits) throw new HostError(3);
              answers.kv.set(key(p, n), this.#bytes(vp, vn));
            },
            nothing,
          ),
      },
      "astrid:fs/host@1.0.0": {
        "fs-exists": (p, n, area) =>
          this.#answer(
            area,
            () => answers.files.has(this.#text(p, n)),
            (found) => [Number(found)],
          ),
        "fs-readdir": (p, n, area) => {
          const path = this.#text(p, n);
          this.#answer(area, () => file(path).split("\n"), texts);
        },
        "read-file": (p, n, area) => this.#answer(area, () => encoder.encode(file(this.#text(p, n))), bytes),
      },
    };
  }
}
