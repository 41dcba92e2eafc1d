"""Answer one question from the notes in corpus/.

Reads one JSON line (an intent) from standard input and writes one JSON line
(the result) to standard output. Passages are ranked with BM25; the answer
quotes the best ones as they stand and cites file and line. Nothing is
invented: with no matching passage, the answer says so and cites nothing.
"""

import json
import math
import re
import sys
from collections import Counter
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
ANSWERS = 3  # passages quoted at most
K1, B = 1.2, 0.75  # the usual BM25 constants
STOPWORDS = frozenset(
    """a about an and any are as at be by can do does for from how i if in into is it its me my
    not of on or our shall should so tell that the their them then there these they this to was
    we were what when where which who why will with would you your""".split()
)


def terms(text):
    """Lower-case words without stop words, with a plural s removed."""
    found = []
    for word in re.findall(r"[^\W_]+", text.lower()):
        if word not in STOPWORDS:
            plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
            found.append(word[:-1] if plural else word)
    return found


def passages(folder):
    """Yield (source, heading, paragraph) for each paragraph of each note."""
    for path in sorted(folder.glob("*.md")):
        heading, start, lines = path.stem, 0, []
        text = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(text + [""], 1):
            line = line.strip()
            if line and not line.startswith("#"):
                start = start or number
                lines.append(line)
                continue
            if lines:
                yield f"corpus/{path.name}#L{start}", heading, " ".join(lines)
                start, lines = 0, []
            if line:
                heading = line.lstrip("# ")


def search(question, folder=CORPUS):
    """Return the best passages for the question, best first."""
    wanted = set(terms(question))
    found = list(passages(folder))
    # A heading names the topic of its paragraphs, so it counts as part of them.
    counts = [Counter(terms(f"{heading} {text}")) for _, heading, text in found]
    if not wanted or not found:
        return []
    lengths = [sum(c.values()) for c in counts]
    mean = sum(lengths) / len(lengths)
    ranked = []
    for passage, count, length in zip(found, counts, lengths):
        score = 0.0
        for term in wanted & count.keys():
            holders = sum(1 for c in counts if term in c)
            rarity = math.log(1 + (len(found) - holders + 0.5) / (holders + 0.5))
            weight = count[term] * (K1 + 1) / (count[term] + K1 * (1 - B + B * length / mean))
            score += rarity * weight
        if score > 0:
            ranked.append((score, passage))
    ranked.sort(key=lambda item: (-item[0], item[1][0]))
    if not ranked:
        return []
    best = ranked[0][0]
    return [passage for score, passage in ranked[:ANSWERS] if score >= best / 2]


def answer(intent):
    question = intent.get("text")
    if not isinstance(question, str) or not question.strip():
        return {"status": "error", "text": "The intent has no text to search for.", "sources": []}
    hits = search(question)
    if not hits:
        return {"status": "ok", "text": "The notes say nothing about this.", "sources": []}
    quotes = [f"[{i}] {heading}: {text}" for i, (_, heading, text) in enumerate(hits, 1)]
    return {"status": "ok", "text": "\n".join(quotes), "sources": [source for source, _, _ in hits]}


def main():
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        intent = json.loads(sys.stdin.readline())
        intent_id = intent["id"]
    except (ValueError, KeyError, TypeError) as error:
        # An answer without the intent's id would be invalid.
        print(f"research: not an intent: {error!r}", file=sys.stderr)
        return 1
    print(json.dumps({"intent_id": intent_id, **answer(intent)}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
