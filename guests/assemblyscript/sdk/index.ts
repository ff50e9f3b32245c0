// What a capsule imports from "@astrid-host/sdk". The host's functions are in modules of their own:
// "@astrid-host/sdk/ipc", "…/sys", "…/kv", "…/fs".

export { describeCapsule, handle, tool, Outcome, Verdict } from "./capsule";
export { schema, Arguments, Schema } from "./schema";
export { parseJson, parseJsonBytes, Parsed } from "./json/parser";
export {
  toJson,
  JsonArray,
  JsonBoolean,
  JsonKind,
  JsonNull,
  JsonNumber,
  JsonObject,
  JsonString,
  JsonValue,
} from "./json/value";
export { stringify } from "./json/writer";
export { Result } from "./result";
