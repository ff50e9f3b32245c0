// The capsule word-tools: counts the words of a text and turns a text round.

import { describeCapsule, schema, tool, Arguments, JsonObject, Outcome } from "@astrid-host/sdk";
import { countText, reverseText } from "./text";

export * from "@astrid-host/sdk/exports";

describeCapsule("Counts words and reverses text.");

tool(
  "word_count",
  "Counts the words, characters and lines of a text.",
  schema().string("text", "The text to count."),
  (args: Arguments): Outcome => {
    const count = countText(args.string("text"));
    return Outcome.json(
      new JsonObject().set("words", count.words).set("characters", count.characters).set("lines", count.lines),
    );
  },
);

tool(
  "reverse_text",
  "Returns a text with its characters in reverse order.",
  schema().string("text", "The text to reverse."),
  (args: Arguments): Outcome => Outcome.text(reverseText(args.string("text"))),
);
