// Counts the words, sentences, paragraphs and characters of one text.
//
// Reads one JSON line (an intent) from standard input and writes one JSON line
// (the result) to standard output. Words and sentences follow the rules of Unicode,
// so the counts are right for every language that the runtime knows.

import { createInterface } from "node:readline";

const WORDS_PER_MINUTE = 230;

export function count(text) {
  const segments = (granularity) => [...new Intl.Segmenter(undefined, { granularity }).segment(text)];
  const words = segments("word").filter((s) => s.isWordLike).length;
  return {
    words,
    sentences: segments("sentence").filter((s) => s.segment.trim()).length,
    paragraphs: text.split(/\n\s*\n/).filter((p) => p.trim()).length,
    characters: segments("grapheme").length,
    minutes: Math.ceil(words / WORDS_PER_MINUTE),
  };
}

function describe(n) {
  const some = (k, noun) => `${k} ${noun}${k === 1 ? "" : "s"}`;
  return (
    `${some(n.words, "word")}, ${some(n.sentences, "sentence")}, ` +
    `${some(n.paragraphs, "paragraph")}, ${some(n.characters, "character")}; ` +
    `about ${some(n.minutes, "minute")} to read`
  );
}

async function main() {
  let line = "";
  for await (line of createInterface({ input: process.stdin })) break;

  let intent;
  try {
    intent = JSON.parse(line);
    if (intent?.id === undefined) throw new Error("it has no id");
  } catch (error) {
    // An answer without the intent's id would be invalid.
    console.error(`wordcount: not an intent: ${error.message}`);
    process.exitCode = 1;
    return;
  }

  const result =
    typeof intent.text === "string"
      ? { status: "ok", text: describe(count(intent.text)) }
      : { status: "error", text: "The intent has no text to count." };
  console.log(JSON.stringify({ intent_id: intent.id, ...result, sources: [] }));
}

await main();
