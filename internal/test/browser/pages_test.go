package browser

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// greeter is a code bundle with a page. The page calls a tool of its own agent, a tool that needs a person's approval,
// and a tool of another agent. The page repeats the answers, because the test may begin to listen late.
var greeter = map[string]string{
	"agents/greeter/findagent.json": `{
  "name": "Greeter", "kind": "code-bundle", "example_prompts": ["Greet Ada."],
  "system_prompt": "You greet people by their names, and ask before you shout at anybody.",
  "tools": [
    {"name": "greet", "description": "Greets a person.", "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    {"name": "shout", "description": "Shouts at a person.", "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
  ],
  "guardrails": {"actions": {"shout": {"approval": "human"}}},
  "entrypoint": {"path": "main.mjs"}, "runtime": {"kind": "node"}, "mcp": {"mode": "wrap"}, "allowed_hosts": [],
  "ui": {"path": "ui"}
}`,
	"agents/greeter/main.mjs":      `export const handler = (input) => "Hello, " + input.name + "!";`,
	"agents/greeter/ui/index.html": `<!doctype html><html lang="en"><title>Greeter</title><body><script src="page.js"></script></body></html>`,
	"agents/greeter/ui/page.js": `
const got = {};
addEventListener("message", ({ data }) => { got[data.id] = data.error ? data.error.data.code : data.result.content[0].text; });
const call = (id, name, method = "tools/call") => parent.postMessage({ jsonrpc: "2.0", id, method, params: { name, arguments: { name: "Ada" } } }, "*");
call("own", "greet");
call("asked", "shout");
call("other", "get_traffic_summary");
call("unknown", "greet", "approvals/decide");
setInterval(() => parent.postMessage({ got }, "*"), 50);
`,
}

// approve waits for a call of a tool that needs approval, and approves it.
func (d *daemon) approve(tool string) {
	d.t.Helper()
	var list struct{ Approvals []struct{ ID, Tool string } }
	for end := time.Now().Add(patience); ; {
		out, err := d.command("approvals", "list", "--json").Output()
		if err != nil || json.Unmarshal(out, &list) != nil {
			d.t.Fatalf("%v: %s", err, out)
		}
		if len(list.Approvals) > 0 && list.Approvals[0].Tool == tool {
			break
		}
		if time.Now().After(end) {
			d.t.Fatalf("no call of %s waits for approval: %s", tool, out)
		}
	}
	if out, err := d.command("approvals", "approve", list.Approvals[0].ID).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %s", err, out)
	}
}

// TestPages opens the page of a code bundle from the console. The page can call the tools of its own agent, and nothing
// else. A call that needs approval waits for a person.
func TestPages(t *testing.T) {
	sandboxtest.Need(t)
	d := start(t, greeter)
	b := d.browse(t)
	b.mu.Lock()
	b.expected = "status of 404" // the browser reports the refusal of the other agent's tool
	b.mu.Unlock()
	b.signIn()
	b.open("/agents/greeter")
	b.text("#head .state", "ready")
	address := ask[string](b, `document.querySelector('#head a[target=_blank]').href`)
	b.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("iframe")))
	ask[bool](b, `addEventListener("message", ({ data }) => { if (data.got) self.got = data.got; }) === undefined`)
	b.until(`self.got?.own?.includes("Hello, Ada!") && self.got.other === "unknown_tool"`)
	if ask[bool](b, `"asked" in self.got || "unknown" in self.got`) {
		t.Errorf("the page got %s", ask[string](b, `JSON.stringify(self.got)`))
	}
	// The page cannot approve its own call. A person can approve it.
	d.approve("shout")
	b.until(`self.got?.asked?.includes("Hello, Ada!")`)
	if ask[bool](b, `"unknown" in self.got`) {
		t.Error("the page got an answer to a message that is not a call")
	}
}
