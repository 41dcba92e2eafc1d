package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

const cursorLinux = "client: cursor\nos: linux"

func plan(t *testing.T, sc *scene) (*Change, error) {
	t.Helper()
	l := sc.ledger(t)
	defer l.Close()
	return sc.client.Plan(sc.system, sc.name, sc.entry, l.Of(sc.name, sc.client.Name))
}

// Invalid files are not changed, and the error contains the reason.
func TestInvalidFilesAreUnchanged(t *testing.T) {
	tests := []struct {
		name, head, text, reason string
	}{
		{"cut off", cursorLinux, `{"mcpServers": {"canary": `, "the file is not valid JSON: error on line 1, column 27"},
		{"two values", cursorLinux, "{}\n{}", "the file is not valid JSON: error on line 2, column 1"},
		{"a list", cursorLinux, "[]", "does not contain a JSON object"},
		{"servers as a list", cursorLinux, `{"mcpServers": []}`, `"mcpServers" is not an object`},
		{"servers twice", cursorLinux, `{"mcpServers": {}, "mcpServers": {}}`, `contains "mcpServers" twice`},
		{"the entry occurs twice", cursorLinux, `{"mcpServers": {"report-builder": 1, "report-builder": 2}}`, `contains "report-builder" twice`},
		{"comments for Claude Code", "client: claude-code\nos: linux", "{\n\n  // canary\n}", "line 3 has a comment or a trailing comma"},
		{"a trailing comma for Gemini", "client: gemini-cli\nos: linux", `{"a": [1,],}`, "trailing comma"},
		{"a trailing comma deep inside", "client: gemini-cli\nos: linux", `{"a": [1,]}`, "trailing comma"},
		{"no TOML", "client: chatgpt\nos: linux", "a = 1\nb = canary\n", "the file is not valid TOML: error on line 2"},
		{"an inline table", "client: chatgpt\nos: linux", "mcp_servers = { a = { command = \"a\" } }\n", "which is probably an inline table"},
		{"servers as a value", "client: chatgpt\nos: linux", "mcp_servers = 1\n", "is not a table"},
		{"no YAML", "client: goose\nos: linux", "a: 1\nb: [canary\n", "the file is not valid YAML: error on line"},
		{"extensions as a list", "client: goose\nos: linux", "extensions: []\n", "is not a mapping"},
		{"extensions in braces", "client: goose\nos: linux", "extensions: {a: {}}\n", "without changing other settings"},
		{"two documents", "client: goose\nos: linux", "a: 1\n---\nb: 1\n", "more than one YAML document"},
		{"other line breaks", "client: goose\nos: linux", "a: 1\rb: 1\n", "unusual line breaks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := stage(t, tt.head)
			sc.put(t, []byte(tt.text))
			_, err := plan(t, sc)
			failed, ok := errors.AsType[*FileError](err)
			if !ok || !strings.Contains(failed.Reason, tt.reason) || failed.Hint == "" {
				t.Fatalf("got %v, want %q with a hint", err, tt.reason)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("the error quotes the content of the file: %v", err)
			}
			if got := sc.read(t); string(got) != tt.text {
				t.Errorf("the file was changed:\n%s", got)
			}
		})
	}
}

func TestReadOnlyFile(t *testing.T) {
	sc := stage(t, cursorLinux)
	sc.put(t, []byte("{}"))
	if err := os.Chmod(sc.file, 0o444); err != nil {
		t.Fatal(err)
	}
	_, err := plan(t, sc)
	if failed, ok := errors.AsType[*FileError](err); !ok || failed.Reason != "the file is read-only" {
		t.Fatalf("got %v", err)
	}
}

func TestLinkStaysALink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	sc := stage(t, cursorLinux)
	sc.put(t, []byte("{}\n"))
	real := filepath.Join(sc.system.Home, "dotfiles.json")
	if err := errors.Join(os.Rename(sc.file, real), os.Symlink(real, sc.file), os.Chmod(real, 0o604)); err != nil {
		t.Fatal(err)
	}
	sc.install(t)
	link, err := os.Lstat(sc.file)
	if err != nil || link.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link was replaced: %v, %v", link, err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o604 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(real); err != nil || !bytes.Contains(text, []byte("report-builder")) {
		t.Errorf("the target of the link contains %s, %v", text, err)
	}
	sc.uninstall(t)
	if got := sc.read(t); string(got) != "{}\n" {
		t.Errorf("after uninstalling: %s", got)
	}
	if err := errors.Join(os.Remove(real)); err != nil {
		t.Fatal(err)
	}
	if _, err := plan(t, sc); err == nil || !strings.Contains(err.Error(), "link to a file that does not exist") {
		t.Errorf("a broken link: %v", err)
	}
}

// TestConcurrentEdits changes the file after ambit has read it and before ambit replaces it.
func TestConcurrentEdits(t *testing.T) {
	theirs := "{\n  \"mcpServers\": {\n    \"theirs\": {\"command\": \"x\"}\n  }\n}\n"
	write := func(sc *scene, edit func(n int)) error {
		l := sc.ledger(t)
		defer l.Close()
		ch, err := sc.client.Plan(sc.system, sc.name, sc.entry, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		ch.meanwhile = func() { n++; edit(n) }
		return l.Write(sc.name, ch)
	}
	t.Run("once", func(t *testing.T) {
		sc := stage(t, cursorLinux)
		sc.put(t, []byte("{}\n"))
		if err := write(sc, func(n int) {
			if n == 1 {
				sc.put(t, []byte(theirs))
			}
		}); err != nil {
			t.Fatal(err)
		}
		if got := string(sc.read(t)); !strings.Contains(got, `"theirs"`) || !strings.Contains(got, `"report-builder"`) {
			t.Errorf("one of the two changes is lost:\n%s", got)
		}
		sc.uninstall(t)
		if got := string(sc.read(t)); got != theirs {
			t.Errorf("after uninstalling:\n%s", got)
		}
	})
	t.Run("without a second backup", func(t *testing.T) {
		sc := stage(t, cursorLinux)
		sc.put(t, []byte("{}\n"))
		if err := write(sc, func(n int) {
			if n > 1 {
				return
			}
			sc.put(t, []byte(theirs))
			// A directory at its path makes the second backup fail.
			backup := "cursor-" + sum([]byte(sc.file))[:8] + "-" + sum([]byte(theirs))[:16]
			if err := os.Mkdir(filepath.Join(sc.system.Ambit, "backups", backup), 0o700); err != nil {
				t.Fatal(err)
			}
		}); err != nil {
			t.Fatalf("the file was changed, but: %v", err)
		}
		sc.uninstall(t)
		if got := string(sc.read(t)); got != theirs {
			t.Errorf("after uninstalling:\n%s", got)
		}
	})
	t.Run("always", func(t *testing.T) {
		sc := stage(t, cursorLinux)
		sc.put(t, []byte("{}\n"))
		err := write(sc, func(n int) { sc.put(t, []byte(strings.Repeat(" ", n)+"{}")) })
		if failed, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(failed.Reason, "keeps changing") {
			t.Fatalf("got %v", err)
		}
		if got := string(sc.read(t)); strings.Contains(got, "report-builder") {
			t.Errorf("the entry was written although the file kept changing: %s", got)
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(sc.file), ".ambit-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("temporary files remain: %v, %v", left, err)
		}
	})
	t.Run("to an invalid file", func(t *testing.T) {
		sc := stage(t, cursorLinux)
		sc.put(t, []byte("{}\n"))
		if err := write(sc, func(int) { sc.put(t, []byte("{")) }); err == nil {
			t.Fatal("an invalid file was edited")
		}
		if got := string(sc.read(t)); got != "{" {
			t.Errorf("the file is %q", got)
		}
	})
	t.Run("with an entry of the same name", func(t *testing.T) {
		sc := stage(t, cursorLinux)
		sc.put(t, []byte("{}\n"))
		same := strings.Replace(theirs, "theirs", "report-builder", 1)
		if err := write(sc, func(int) { sc.put(t, []byte(same)) }); err == nil {
			t.Fatal("an entry was replaced without asking")
		}
		if got := string(sc.read(t)); got != same {
			t.Errorf("the file is %q", got)
		}
	})
}

// TestOthersAreKept installs, changes and uninstalls agents in different orders. In the end, the
// file must contain all changes made by others and no entry written by ambit.
func TestOthersAreKept(t *testing.T) {
	second := func(sc *scene) *scene {
		other := *sc
		other.name = "second"
		other.entry = NewEntry("/usr/local/bin/ambit", "second", "")
		return &other
	}
	for _, head := range []string{cursorLinux, "client: chatgpt\nos: linux"} {
		original := "{\n  \"a\": 1\n}\n"
		changed := func(s string) string { return strings.Replace(s, `"a": 1`, `"a": 2`, 1) }
		if strings.Contains(head, "chatgpt") {
			original = "a = 1\n"
			changed = func(s string) string { return strings.Replace(s, "a = 1", "a = 2", 1) }
		}
		tests := map[string]struct {
			do   func(t *testing.T, one *scene)
			want string
		}{
			"removed in reverse order": {func(t *testing.T, one *scene) {
				two := second(one)
				one.install(t)
				two.install(t)
				two.uninstall(t)
				one.uninstall(t)
			}, original},
			"removed in the order of installation": {func(t *testing.T, one *scene) {
				two := second(one)
				one.install(t)
				two.install(t)
				one.uninstall(t)
				two.uninstall(t)
			}, original},
			"changed by the user": {func(t *testing.T, one *scene) {
				one.install(t)
				one.put(t, []byte(changed(string(one.read(t)))))
				one.uninstall(t)
			}, changed(original)},
			"changed, then installed again with another path": {func(t *testing.T, one *scene) {
				one.install(t)
				one.put(t, []byte(changed(string(one.read(t)))))
				one.entry.Command = "/opt/ambit"
				one.install(t)
				if !strings.Contains(string(one.read(t)), "/opt/ambit") {
					t.Error("the file does not contain the new path")
				}
				one.uninstall(t)
			}, changed(original)},
			"installed again with another path": {func(t *testing.T, one *scene) {
				one.install(t)
				one.entry.Command = "/opt/ambit"
				one.install(t)
				one.uninstall(t)
			}, original},
			"entry already removed": {func(t *testing.T, one *scene) {
				one.install(t)
				one.put(t, []byte(original))
				one.uninstall(t)
			}, original},
		}
		for name, tt := range tests {
			t.Run(strings.Fields(head)[1]+" "+name, func(t *testing.T) {
				sc := stage(t, head)
				sc.put(t, []byte(original))
				tt.do(t, sc)
				if got := string(sc.read(t)); got != tt.want {
					t.Errorf("got the file:\n%s\nwant:\n%s", got, tt.want)
				}
				left, err := os.ReadDir(filepath.Join(sc.system.Ambit, "backups"))
				if err != nil || len(left) > 0 {
					t.Errorf("backups remain: %v, %v", left, err)
				}
			})
		}
	}
}

func TestForeignEntry(t *testing.T) {
	for head, text := range map[string]string{
		cursorLinux:                  "{\n  \"mcpServers\": {\n    \"report-builder\": {\"command\": \"mine\", \"env\": {\"T\": \"canary\"}}\n  }\n}\n",
		"client: chatgpt\nos: linux": "[mcp_servers.report-builder]\ncommand = \"mine\"\n[mcp_servers.report-builder.env]\nT = \"canary\"\n\n# next\n[b]\n",
	} {
		sc := stage(t, head)
		sc.put(t, []byte(text))
		ch, err := plan(t, sc)
		if err != nil || !ch.Theirs {
			t.Fatalf("%s: an entry of another program is treated as ambit's: %v", head, err)
		}
		if strings.Contains(ch.Diff, "canary") || !strings.Contains(ch.Diff, "not shown") {
			t.Errorf("the diff shows the other program's entry:\n%s", ch.Diff)
		}
		sc.install(t)
		if got := string(sc.read(t)); strings.Contains(got, "canary") || strings.Contains(head, "chatgpt") && !strings.Contains(got, "\n# next\n[b]\n") {
			t.Errorf("after installing:\n%s", got)
		}
		sc.uninstall(t)
		if got := string(sc.read(t)); got != text {
			t.Errorf("after uninstalling:\n%s", got)
		}
	}
}

func TestChangedEntryIsKept(t *testing.T) {
	sc := stage(t, cursorLinux)
	sc.put(t, []byte("{}\n"))
	sc.install(t)
	edited := strings.Replace(string(sc.read(t)), `"run"`, `"run", "--skill", "x"`, 1)
	sc.put(t, []byte(edited))
	l := sc.ledger(t)
	defer l.Close()
	w := l.Of(sc.name, "cursor")
	if _, err := sc.client.PlanRemoval(w, false); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Fatalf("got %v", err)
	}
	ch, err := sc.client.PlanRemoval(w, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(sc.name, ch, w); err != nil {
		t.Fatal(err)
	}
	if got := string(sc.read(t)); got != "{}\n" {
		t.Errorf("after a removal with force, the file is %s", got)
	}
}

func TestBackupsAreReadableOnlyByTheOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	sc := stage(t, cursorLinux)
	sc.put(t, []byte(`{"secret": "canary"}`))
	sc.install(t)
	files, err := filepath.Glob(filepath.Join(sc.system.Ambit, "backups", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("backups: %v, %v", files, err)
	}
	for _, f := range append(files, filepath.Join(sc.system.Ambit, "installs.json")) {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	ledger, err := os.ReadFile(filepath.Join(sc.system.Ambit, "installs.json"))
	if err != nil || bytes.Contains(ledger, []byte("canary")) {
		t.Errorf("the ledger: %s, %v", ledger, err)
	}
}

func TestNewerLedgerIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "installs.json"), []byte(`{"version": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(dir); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v", err)
	}
}

func TestLedgerWithoutAgentsIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "installs.json"), []byte(`{"version": 1, "agents": null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLedger(dir); err == nil || !strings.Contains(err.Error(), "\"agents\" is missing") {
		t.Errorf("got %v", err)
	}
}

func TestLinks(t *testing.T) {
	e := NewEntry(`C:\a b\ambit.exe`, "x&y", "")
	link, err := url.Parse(Named("cursor").Link("x&y", e))
	if err != nil {
		t.Fatal(err)
	}
	config, err := base64.StdEncoding.DecodeString(link.Query().Get("config"))
	if err != nil || link.Query().Get("name") != "x&y" {
		t.Fatalf("%s: %v", link, err)
	}
	_, query, _ := strings.Cut(Named("vscode").Link("x&y", e), "?")
	install, err := url.PathUnescape(query)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(config), install} {
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil || got["command"] != `C:\a b\ambit.exe` {
			t.Errorf("%s: %v", text, err)
		}
	}
	if Named("claude-code").Link("x", e) != "" {
		t.Error("Link returned a link for Claude Code, which does not support links")
	}
}

func TestFit(t *testing.T) {
	local := &agent.Agent{Delivery: agent.Delivery{Modes: []string{"mcp.stdio"}, Exec: "user-local"}}
	far := &agent.Agent{Delivery: agent.Delivery{Modes: []string{"mcp.remote"}, Exec: "findagent-hosted", URL: "https://a.example/mcp", Auth: "api-key"}}
	ours := &agent.Agent{Delivery: agent.Delivery{Modes: []string{"mcp.remote"}, Exec: "findagent-hosted"}}
	recipe := &agent.Agent{Delivery: agent.Delivery{Modes: []string{"prompt"}}}
	for _, c := range Clients {
		if reason, hint := c.Refuse(local); (reason != "") != (c.Name == Web) || (reason == "") != (hint == "") {
			t.Errorf("a local agent in %s: %q", c.Name, reason)
		}
		if reason, _ := c.Refuse(far); reason != "" {
			t.Errorf("an agent that is hosted at a URL in %s: %q", c.Name, reason)
		}
		if reason, _ := c.Refuse(ours); reason == "" {
			t.Errorf("%s accepts a hosted agent without a URL", c.Name)
		}
		if reason, _ := c.Refuse(recipe); reason != "" {
			t.Errorf("a recipe in %s: %q", c.Name, reason)
		}
	}
	if steps := strings.Join(Named(Web).Steps(far), "\n"); !strings.Contains(steps, "https://a.example/mcp") || !strings.Contains(steps, "API key") {
		t.Errorf("steps: %s", steps)
	}
	hints := &agent.Agent{Compatibility: map[string]string{"claude": ">=2.1", "gemini": "soon"}}
	for _, tt := range []struct{ client, version, want string }{
		{"claude-code", "2.1.197", ""},
		{"claude-code", "2.0.9", "installed version of Claude Code is 2.0.9"},
		{"claude-code", "", "could not be checked"},
		{"gemini-cli", "1.0.0", "could not be checked"},
		{"cursor", "", ""},
	} {
		if got := Named(tt.client).Unmet(hints, tt.version); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q", tt.client, tt.version, got)
		}
	}
}
