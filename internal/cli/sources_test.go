package cli_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// sources is the script command "sources SERVER.js SERVER.py FILE…". It publishes one small tool server on this
// machine in every form, until the end of the script. The forms are the npm package @ambit-test/notes, the Python
// package ambit-notes, a bundle, and registry entries. The registry entries are com.example/notes-npm, -pypi, -mcpb,
// -oci and -bad. In each FILE, it replaces PORT with the port of the registry.
func sources(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sources SERVER.js SERVER.py FILE...")
	}
	js, py := ts.ReadFile(args[0]), ts.ReadFile(args[1])
	s := newSources(js, py)
	ts.Defer(s.Close)
	_, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
	ts.Setenv("npm_config_@ambit-test:registry", s.URL+"/npm/")
	ts.Setenv("npm_config_noproxy", "127.0.0.1")
	ts.Setenv("UV_DEFAULT_INDEX", s.URL+"/simple/")
	ts.Setenv("NO_PROXY", "127.0.0.1")
	for _, file := range args[2:] {
		text := strings.ReplaceAll(ts.ReadFile(file), "PORT", port)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

func newSources(js, py string) *httptest.Server {
	const version = "1.2.3"
	self := map[string]any{"name": "@ambit-test/notes", "version": version, "bin": map[string]string{"notes": "index.js"}}
	manifest, _ := json.Marshal(self)
	tarball := tarred(map[string]string{"package/package.json": string(manifest), "package/index.js": js})
	info := "ambit_notes-" + version + ".dist-info/"
	wheel := archived(map[string]string{
		"ambit_notes.py": py, info + "METADATA": "Metadata-Version: 2.1\nName: ambit-notes\nVersion: " + version + "\n",
		info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", info + "RECORD": "",
		info + "entry_points.txt": "[console_scripts]\nambit-notes = ambit_notes:main\n",
	})
	bundle := archived(map[string]string{
		"manifest.json": `{"manifest_version":"0.3","name":"notes","version":"4.0.0","server":{"type":"node","entry_point":"index.js","mcp_config":{"command":"node","args":["${__dirname}/index.js"]}}}`,
		"index.js":      js,
	})
	sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	mux.HandleFunc("/npm/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".tgz") {
			_, _ = w.Write(tarball)
			return
		}
		long, short := sha512.Sum512(tarball), sha1.Sum(tarball)
		one := maps.Clone(self)
		one["dist"] = map[string]any{"tarball": s.URL + "/npm/notes.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:]), "shasum": hex.EncodeToString(short[:])}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": self["name"], "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: one}})
	})
	file := "ambit_notes-" + version + "-py3-none-any.whl"
	mux.HandleFunc("/simple/ambit-notes/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `<a href="/files/%s">%s</a>`, file, file) })
	mux.HandleFunc("/files/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
	mux.HandleFunc("/notes.mcpb", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bundle) })
	packages := map[string]map[string]string{
		"npm":  {"registryType": "npm", "identifier": "@ambit-test/notes", "version": version},
		"pypi": {"registryType": "pypi", "identifier": "ambit-notes", "version": version, "fileSha256": sum(wheel)},
		"mcpb": {"registryType": "mcpb", "identifier": s.URL + "/notes.mcpb", "fileSha256": sum(bundle)},
		"bad":  {"registryType": "mcpb", "identifier": s.URL + "/notes.mcpb", "fileSha256": sum(wheel)},
		"oci":  {"registryType": "oci", "identifier": "images.example.com/notes:1"},
	}
	mux.HandleFunc("/v0.1/servers/{name}/versions", func(w http.ResponseWriter, r *http.Request) {
		p := packages[strings.TrimPrefix(r.PathValue("name"), "com.example/notes-")]
		if p == nil {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"servers": []any{map[string]any{"server": map[string]any{"name": r.PathValue("name"), "version": "1.5.0", "packages": []any{p}}}}, "metadata": map[string]any{}})
	})
	return s
}

func tarred(files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))})
		_, _ = w.Write([]byte(files[name]))
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}

func archived(files map[string]string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, _ := w.Create(name)
		_, _ = f.Write([]byte(files[name]))
	}
	_ = w.Close()
	return b.Bytes()
}
