"""One JSON line in, one JSON line out. Log output belongs on stderr."""

import json
import sys

intent = json.loads(sys.stdin.readline())
answer = "you said: " + intent["text"]
print(json.dumps({"intent_id": intent["id"], "status": "ok", "text": answer, "sources": []}))
