package draft

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// covenant returns a Covenant manifest. For Python and Node.js, it also returns a simple program as a starting point.
func (d *Draft) covenant() (text []byte, files []File) {
	runtime := cmp.Or(d.Runtime, "python3")
	entry := cmp.Or(d.Entry, map[string]string{"node": "main.mjs"}[runtime], "main.py")
	var b strings.Builder
	fmt.Fprintf(&b, "[agent]\nid      = %s\nname    = %s\nversion = \"0.1.0\"\nruntime = %s\nentry   = %s\n",
		quoted(d.Name+"@local"), quoted(d.Name), quoted(runtime), quoted(entry))
	list := make([]string, 0, len(d.Requires))
	for _, c := range words(d.Requires) {
		list = append(list, quoted(c))
	}
	fmt.Fprintf(&b, "\n[capabilities]\nrequired = [%s]\noptional = []\n", strings.Join(list, ", "))
	fmt.Fprintf(&b,
		"\n[resources]\ncpu_ms_per_task = 30000\nmemory_mb       = 512\ndisk_mb         = 100\nnetwork         = %s\n",
		quoted(cmp.Or(d.Network, "off")))
	b.WriteString("\n[settlement]\nbudget_credits_per_hour = 0\npriority                = \"normal\"\n")
	if program, ok := programs[runtime]; ok {
		files = []File{{entry, program}}
	}
	return []byte(b.String()), files
}

// quoted returns s as a TOML string. Every JSON string is also a valid TOML string.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // encoding a string never fails
	}
	return string(b)
}

// programs maps a runtime to a program that echoes its input.
var programs = map[string]string{
	"python3": `"""One JSON line in, one JSON line out. Log output belongs on stderr."""

import json
import sys

intent = json.loads(sys.stdin.readline())
answer = "you said: " + intent["text"]
print(json.dumps({"intent_id": intent["id"], "status": "ok", "text": answer, "sources": []}))
`,
	"node": `// One JSON line in, one JSON line out. Log output belongs on stderr.
import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
  const intent = JSON.parse(line);
  const answer = 'you said: ' + intent.text;
  console.log(JSON.stringify({ intent_id: intent.id, status: 'ok', text: answer, sources: [] }));
  break;
}
`,
}
