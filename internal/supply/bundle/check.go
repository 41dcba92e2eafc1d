package bundle

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

// check looks for every problem of a bundle.
func (b *Bundle) check() {
	if len(b.Tree) == 0 && len(b.Problems) > 0 {
		return // there is nothing to check
	}
	b.checkManifest()
	if a := b.Agent(); a != nil {
		b.checkFiles(a)
		b.checkVariables(a)
		b.checkSkills(a)
	}
	for i := range b.Tree {
		f := &b.Tree[i]
		if what := compiled(f); what != "" {
			b.report(ruleNative, f.Path, 0, "%s is %s", diag.Quote(f.Path), what)
			continue
		}
		b.checkSecrets(f)
		b.checkHosts(f)
	}
}

func (b *Bundle) checkManifest() {
	f := b.Tree.Find(ManifestName)
	if f == nil {
		b.report(ruleManifest, ManifestName, 0, "there is no %s at the top", ManifestName)
		return
	}
	var err error
	b.Manifest, err = manifest.Parse(ManifestName, f.Data, manifest.Options{Dialect: agent.FindAgent})
	if err == nil {
		if a := b.Manifest.Agent(); a.Kind != agent.CodeBundle {
			b.report(ruleManifest, ManifestName, 0, "the manifest has kind %s, not code-bundle", a.Kind)
			b.Manifest = nil
		}
		return
	}
	for _, d := range b.Manifest.Errors() {
		b.Problems = append(b.Problems, Problem{d.Code, d.Severity, ManifestName, d.Line, d.Message, d.Hint})
	}
}

// Built is the path of the file that runs for an entrypoint: for TypeScript the built
// file beside its source, otherwise the entrypoint itself.
func Built(entry string) string {
	if IsTypeScript(entry) {
		return entry + ".mjs"
	}
	return entry
}

// IsTypeScript reports whether a file has to be built.
func IsTypeScript(file string) bool {
	return slices.Contains([]string{".ts", ".mts", ".cts", ".tsx"}, path.Ext(file))
}

// checkFiles reports files that the manifest names and the bundle lacks.
func (b *Bundle) checkFiles(a *agent.Agent) {
	p := a.Program
	if p.Contract == agent.Wrapped {
		entry := path.Clean(p.Entry)
		switch {
		case b.Tree.Find(entry) == nil:
			b.report(ruleMissing, entry, 0, "the entrypoint %s is not in the bundle", diag.Quote(p.Entry))
		case IsTypeScript(entry):
			b.checkBuilt(entry)
		}
	}
	if p.UI != "" {
		ui := path.Clean(p.UI)
		if b.Tree.Find(ui) == nil && b.Tree.Find(path.Join(ui, "index.html")) == nil {
			b.report(ruleMissing, ui, 0, "the ui %s has no index.html, or is not in the bundle", diag.Quote(p.UI))
		}
	}
}

// checkBuilt compares the built file with its source.
func (b *Bundle) checkBuilt(entry string) {
	there := b.Tree.Find(Built(entry))
	if there == nil && b.archived {
		b.report(ruleBuild, entry, 0, "%s was not built when the bundle was packed", diag.Quote(entry))
		return
	}
	text, problems := build(b.Tree, entry)
	if len(problems) > 0 && there == nil {
		b.Problems = append(b.Problems, problems...)
		return
	}
	switch {
	case there == nil:
		b.Tree = b.Tree.put(File{Path: Built(entry), Data: text})
	case len(problems) > 0 || !bytes.Equal(there.Data, text):
		b.report(ruleOtherBuild, Built(entry), 0, "%s differs from a fresh build of %s", diag.Quote(Built(entry)), diag.Quote(entry))
	}
}

// ours are the variables that control the sandbox and the runtimes.
var ours = regexp.MustCompile(`^(?:PATH|HOME|TMPDIR|USER|LANG|LC_.*|LD_.*|NODE_.*|PYTHON.*|UV_.*|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_.*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|OPENSSL_.*|GCONV_PATH|AMBIT_.*)$`)

func (b *Bundle) checkVariables(a *agent.Agent) {
	for _, e := range a.Program.Env {
		if ours.MatchString(e.Name) {
			b.report(ruleVariable, ManifestName, 0, "the setting %s belongs to the sandbox", diag.Quote(e.Name))
		}
	}
	for _, s := range a.Slots {
		if ours.MatchString(s.Env) {
			b.report(ruleVariable, ManifestName, 0, "the credential slot %s has the variable %s, which belongs to the sandbox", diag.Quote(s.Ref), diag.Quote(s.Env))
		}
	}
}

// compiled describes a file of compiled code; empty for any other file.
func compiled(f *File) string {
	for _, m := range []struct{ begin, what string }{
		{"\x7fELF", "a program or library for Linux"},
		{"\xfe\xed\xfa\xce", "a program or library for macOS"},
		{"\xfe\xed\xfa\xcf", "a program or library for macOS"},
		{"\xce\xfa\xed\xfe", "a program or library for macOS"},
		{"\xcf\xfa\xed\xfe", "a program or library for macOS"},
		{"\xca\xfe\xba\xbe", "a program for several machines, or for Java"},
		{"MZ", "a program or library for Windows"},
		{"\x00asm", "WebAssembly"},
		{"!<arch>\n", "a library"},
	} {
		if bytes.HasPrefix(f.Data, []byte(m.begin)) && (m.begin != "MZ" || !utf8.Valid(f.Data)) {
			return m.what
		}
	}
	switch path.Ext(f.Path) {
	case ".node", ".so", ".dylib", ".dll", ".exe":
		return "named as a program or library"
	case ".pyc", ".pyo", ".jsc":
		return "compiled code of an interpreter"
	}
	return ""
}

func (b *Bundle) checkSecrets(f *File) {
	engine, err := secret.Standard()
	var found []secret.Match
	if err == nil {
		found, err = engine.Scan(f.Data, nil, nil)
	}
	if err != nil {
		b.report(ruleUnscanned, f.Path, 0, "%s could not be scanned for secrets", diag.Quote(f.Path))
	}
	for _, m := range found {
		b.report(ruleSecret, f.Path, line(f.Data, m.Start), "%s holds a secret (%s)", diag.Quote(f.Path), m.Rule)
	}
}

func line(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// code are the extensions of files that may use the network.
var code = []string{".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".py", ".sh", ".html"}

var address = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:https?|wss?)://([a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+|localhost|\[[0-9a-f:.]+\])`)
})

// checkHosts reports hosts in code that the manifest does not list, each once per
// file.
func (b *Bundle) checkHosts(f *File) {
	if !slices.Contains(code, path.Ext(f.Path)) {
		return
	}
	var hosts []string
	if a := b.Agent(); a != nil {
		hosts = a.Program.Hosts
	}
	seen := map[string]bool{}
	for _, m := range address().FindAllSubmatchIndex(f.Data, -1) {
		host := strings.ToLower(string(f.Data[m[2]:m[3]]))
		if seen[host] || agent.Covers(hosts, host) {
			continue
		}
		seen[host] = true
		b.report(ruleHost, f.Path, line(f.Data, m[0]), "%s names the host %s, which is not in allowed_hosts", diag.Quote(f.Path), diag.Quote(host))
	}
}
