package host

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These are two versions of the same small server, in two languages. The server's tool "look" returns the server's
// configuration, and whether the server can see a forbidden file.
const (
	nodeServer = `
const fs = require('fs'), own = require('./own')
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const m = JSON.parse(line)
  if (m.id === undefined) return
  const say = rest => console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, ...rest}))
  switch (m.method) {
  case 'initialize': return say({result: {protocolVersion: m.params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'b', version: '1'}}})
  case 'tools/list': return say({result: {tools: [{name: 'look', inputSchema: {type: 'object'}, annotations: {readOnlyHint: true}}]}})
  case 'tools/call': return say({result: {content: [{type: 'text', text: 'look done ' + [own, process.argv.slice(2), process.env.KEY, fs.existsSync(process.env.SECRET_FILE)].join(' ')}]}})
  }
  say({error: {code: -32601, message: 'no'}})
})`
	pythonServer = `
import json, os, sys
import own
for line in sys.stdin:
    m = json.loads(line)
    if 'id' not in m:
        continue
    def say(**rest):
        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], **rest}), flush=True)
    if m['method'] == 'initialize':
        say(result={'protocolVersion': m['params']['protocolVersion'], 'capabilities': {'tools': {}}, 'serverInfo': {'name': 'b', 'version': '1'}})
    elif m['method'] == 'tools/list':
        say(result={'tools': [{'name': 'look', 'inputSchema': {'type': 'object'}, 'annotations': {'readOnlyHint': True}}]})
    elif m['method'] == 'tools/call':
        seen = str(os.path.exists(os.environ['SECRET_FILE'])).lower()
        say(result={'content': [{'type': 'text', 'text': 'look done ' + ' '.join([own.word, ','.join(sys.argv[1:]), os.environ['KEY'], seen])}]})
    else:
        say(error={'code': -32601, 'message': 'no'})`
)

// zipped returns a zip archive of the files, sorted by name.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// published returns an agent that requires a bundle from a test registry, and the test registry.
func published(t *testing.T, archive []byte, settings string) (*rig, *httptest.Server) {
	t.Helper()
	sum := sha256.Sum256(archive)
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/v0.1/servers/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"servers":[{"server":{"name":"com.example/notes","version":"1.2.0","packages":[
			{"registryType":"mcpb","identifier":%q,"fileSha256":%q,"transport":{"type":"stdio"}}]}}],"metadata":{}}`, s.URL+"/moved", hex.EncodeToString(sum[:]))
	})
	mux.Handle("/moved", http.RedirectHandler("/notes.mcpb", http.StatusFound))
	mux.HandleFunc("/notes.mcpb", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	r := newRig(t)
	delete(r.lock.Agents, gparsID)
	r.manifest["required_mcp_servers"] = []any{map[string]any{"server_id": "registry.example.com/notes", "version": "^1.0.0", "permission_scopes": []string{"use"}}}
	secret := filepath.Join(r.home.Dir(), "secret.txt")
	config := fmt.Sprintf("[registry.\"registry.example.com\"]\nurl = %q\nnamespace = \"com.example\"\n[server.\"registry.example.com/notes\"]\nenv = { SECRET_FILE = %q%s }\n", s.URL, secret, settings)
	for file, text := range map[string]string{secret: "s", filepath.Join(r.home.Dir(), "config.toml"): config} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, s
}

func TestLazyBundle(t *testing.T) {
	node := map[string]string{
		"manifest.json":   `{"manifest_version":"0.3","name":"notes","version":"7.0.0","server":{"type":"node","entry_point":"server/index.js","mcp_config":{"command":"node","args":["${__dirname}/server/index.js","a","${user_config.more}"],"env":{"KEY":"${user_config.key}"}}},"user_config":{"key":{"type":"string","sensitive":true,"required":true},"more":{"type":"string","default":"b"}}}`,
		"server/index.js": nodeServer, "server/own.js": "module.exports = 'own'",
	}
	python := map[string]string{
		"manifest.json":  `{"manifest_version":"0.3","name":"notes","version":"7.0.0","server":{"type":"python","entry_point":"server/main.py","mcp_config":{"command":"python","args":["${__dirname}/server/main.py","a","b"],"env":{"PYTHONPATH":"${__dirname}/lib","KEY":"k"}}}}`,
		"server/main.py": pythonServer, "lib/own.py": "word = 'own'",
	}
	binary := map[string]string{
		"manifest.json": `{"manifest_version":"0.3","name":"notes","version":"7.0.0","server":{"type":"binary","entry_point":"run","mcp_config":{"command":"${__dirname}/run","args":["a","b"],"env":{"KEY":"k"}}}}`,
		"run":           "#!/usr/bin/env node\n" + nodeServer, "own.js": "module.exports = 'own'",
	}
	for name, files := range map[string]map[string]string{"node": node, "python": python, "binary": binary} {
		t.Run(name, func(t *testing.T) {
			r, s := published(t, zipped(t, files), `, KEY = "k"`)
			d := dial(t, r.start())
			if got := d.tools(); !slices.Equal(got, []string{"look"}) {
				t.Fatalf("the tools are %v", got)
			}
			m := d.call("look")
			if !strings.Contains(string(m.Result), "look done own a,b k false") {
				t.Fatalf("the tool returned %s %+v; want its configuration, and no access to ambit's files", m.Result, m.Error)
			}
			s.Close()
			works(t, dial(t, r.start()).call("look"), "look") // the second start takes the package from the package store
		})
	}
	t.Run("a required setting is missing", func(t *testing.T) {
		r, _ := published(t, zipped(t, node), "")
		d := dial(t, r.start())
		if got := d.tools(); len(got) != 0 {
			t.Fatalf("the tools are %v", got)
		}
	})
}

// A package that does not match the registry's hash, or was modified in the store, is not run.
func TestLazyBundleChanged(t *testing.T) {
	files := map[string]string{
		"manifest.json": `{"server":{"type":"node","entry_point":"index.js","mcp_config":{"command":"node","env":{"KEY":"k"}}}}`,
		"index.js":      nodeServer, "own.js": "module.exports = 'own'",
	}
	archive := zipped(t, files)
	r, s := published(t, archive, "")
	d := dial(t, r.start())
	if got := d.tools(); !slices.Equal(got, []string{"look"}) {
		t.Fatalf("the tools are %v", got)
	}
	works(t, d.call("look"), "look")
	s.Close()
	found, err := filepath.Glob(filepath.Join(r.home.Packages(), "*", "*", "tree", "own.js"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if err := os.Chmod(found[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found[0], []byte("module.exports = 'owm'"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := dial(t, r.start()).call("look")
	var data struct {
		Code string `json:"gpars_code"`
	}
	if m.Error == nil || json.Unmarshal(m.Error.Data, &data) != nil || data.Code != "SERVER_UNAVAILABLE" {
		t.Errorf("a modified bundle was run: %s %+v", m.Result, m.Error)
	}
}
