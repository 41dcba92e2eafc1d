package importer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// planted returns the made-up secrets of testdata/planted. Each has a kind and a value.
func planted(t testing.TB, name string) (list [][2]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "planted", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		list = append(list, [2]string{kind, value})
	}
	return list
}

// positions are commands with a secret as a bare word, in the places that people put it.
var positions = []string{
	`"npx", "-y", "@corp/notes-mcp", SECRET`,
	`"npx", "-y", "notes-mcp@1.2.0", "stdio", SECRET, "--verbose"`,
	`"uvx", "notes-mcp", "serve", SECRET`,
	`"node", "/srv/notes/index.js", SECRET, "/srv/data"`,
	`"python3", "server.py", "--debug", SECRET`,
	`"/opt/notes/bin/server", SECRET`,
	`"docker", "run", "-i", "--rm", "corp/notes", SECRET`,
}

// copiedOf returns the planted secrets that an import copied as a bare word.
func copiedOf(t *testing.T, name string) (copied []string, tried int) {
	for i, s := range planted(t, name) {
		quoted, err := json.Marshal(s[1])
		if err != nil {
			t.Fatal(err)
		}
		tried++
		line := strings.ReplaceAll(positions[i%len(positions)], "SECRET", string(quoted))
		_, text, _ := importLine(t, line)
		if strings.Contains(text, s[1]) || strings.Contains(text, strings.Trim(string(quoted), `"`)) {
			copied = append(copied, s[0]+" "+s[1])
		}
	}
	return copied, tried
}

// A secret that is a bare word of a command, without the name of an option before it, is not copied.
func TestBareSecrets(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		if copied, tried := copiedOf(t, name); len(copied) > 0 {
			t.Errorf("%d of %d secrets in %s were copied:\n%s", len(copied), tried, name, strings.Join(copied, "\n"))
		}
	}
}

// settingsCopied imports the ordinary settings of testdata/planted/settings.txt, and returns those that became
// references. Only every second setting is used, beginning with the given index.
func settingsCopied(t *testing.T, first int) (taken []string, tried int) {
	list := planted(t, "settings")
	for i := first; i < len(list); i += 2 {
		tried++
		entry, err := json.Marshal(map[string]any{"command": "notes", "env": map[string]string{list[i][0]: list[i][1]}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Import(configuration(t, `"notes": `+string(entry)), ".")
		if err != nil {
			t.Errorf("%s: %v", entry, err)
		} else if strings.Contains(string(r.Text), "$env:") {
			taken = append(taken, list[i][0]+"="+list[i][1])
		}
	}
	return taken, tried
}

// Ordinary settings are copied unchanged.
func TestPlainSettings(t *testing.T) {
	for _, first := range []int{0, 1} {
		if taken, tried := settingsCopied(t, first); len(taken) > 0 {
			t.Errorf("%d of %d settings became references:\n%s", len(taken), tried, strings.Join(taken, "\n"))
		}
	}
}

// Ordinary words of a command are copied unchanged.
func TestPlainWords(t *testing.T) {
	for i, word := range planted(t, "words") {
		quoted, err := json.Marshal(word[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, text, err := importLine(t, strings.ReplaceAll(positions[i%len(positions)], "SECRET", string(quoted))); err != nil ||
			!strings.Contains(text, string(quoted)) {
			t.Errorf("%s was not copied: %s %v", quoted, text, err)
		}
	}
}

// FuzzPlanted puts a secret into every place of a configuration where a secret has a name or follows one. No import
// copies it.
func FuzzPlanted(f *testing.F) {
	for i, s := range planted(f, "a") {
		f.Add(s[1], i)
	}
	places := []string{
		`{"command": "npx", "args": ["-y", "notes-mcp"], "env": {"API_KEY": S}}`,
		`{"command": "npx", "args": ["-y", "notes-mcp", "--api-key", S, "--verbose"]}`,
		`{"command": "uvx", "args": ["notes-mcp", "--db-password", S]}`,
		`{"command": "docker", "args": ["run", "-i", "-e", "TOKEN", "mcp/notes"], "env": {"TOKEN": S}}`,
		`{"url": "https://mcp.example.com/mcp", "headers": {"Authorization": S}}`,
		`{"url": "https://mcp.example.com/mcp", "headers": {"X-Api-Key": S}}`,
		`{"command": "npx", "args": ["mcp-remote", "https://mcp.example.com/mcp", "--header", "Authorization:${AUTH}"], "env": {"AUTH": S}}`,
		`{"command": "env", "args": ["notes-mcp"], "env": {"NOTES_SECRET": S}, "description": S}`,
		`{"command": "node", "args": ["/srv/index.js", S], "env": {"NOTES_TOKEN": S}}`,
		`{"cmd": "npx", "args": ["notes-mcp", "--token", S], "envs": {"TOKEN": S}}`,
	}
	f.Fuzz(func(t *testing.T, secret string, at int) {
		quoted, err := json.Marshal(secret)
		if err != nil || len(secret) < 8 || harmless(secret) || plainWords[secret] || strings.ContainsAny(secret, "${}") ||
			strings.TrimSpace(secret) != secret || !json.Valid(quoted) {
			t.Skip("not a secret")
		}
		// The names of sections of the configuration, files and login methods are not treated as secrets.
		if u := strings.Join(places, ""); strings.Contains(u, secret) || secretlike.PlainURL(secret) || secretlike.PlainValue(secret) {
			t.Skip("not a secret")
		}
		entry := strings.ReplaceAll(places[uint(at)%uint(len(places))], "S}", string(quoted)+"}")
		entry = strings.NewReplacer(" S,", " "+string(quoted)+",", " S]", " "+string(quoted)+"]").Replace(entry)
		file := configuration(t, `"notes": `+entry)
		r, err := Import(file, filepath.Dir(file))
		if err != nil {
			return
		}
		for _, shown := range append([]Note{{Detail: string(r.Text)}}, r.Notes...) {
			if strings.Contains(shown.Detail+shown.What, secret) || strings.Contains(shown.Detail, strings.Trim(string(quoted), `"`)) {
				t.Errorf("%s: the secret was copied:\n%s", entry, shown.Detail)
			}
		}
	})
}
