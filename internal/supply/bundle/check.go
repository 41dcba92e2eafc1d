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

func (b *Bundle) check() {
	if len(b.Tree) == 0 && len(b.Problems) > 0 {
		return // there is nothing to check, because no file could be read
	}
	b.checkManifest()
	if a := b.Agent(); a != nil {
		b.checkFiles(a)
		b.checkVariables(a)
		b.checkSkills(a)
	}
	for i := range b.Tree {
		f := &b.Tree[i]
		if what := describeCompiled(f); what != "" {
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
		b.report(ruleManifest, ManifestName, 0, "the bundle has no %s in its top folder", ManifestName)
		return
	}
	var err error
	b.Manifest, err = manifest.Parse(ManifestName, f.Data, manifest.Options{Dialect: agent.FindAgent})
	if err == nil {
		if a := b.Manifest.Agent(); a.Kind != agent.CodeBundle {
			b.report(ruleManifest, ManifestName, 0, "the kind of the manifest is %s, but must be code-bundle", a.Kind)
			b.Manifest = nil
		}
		return
	}
	for _, d := range b.Manifest.Errors() {
		b.Problems = append(b.Problems, Problem{d.Code, d.Severity, ManifestName, d.Line, d.Message, d.Hint})
	}
}

// Built returns the path of the file that is run for an entrypoint. For TypeScript, this is the built file in the same
// folder. Otherwise, it is the entrypoint itself.
func Built(entry string) string {
	if IsTypeScript(entry) {
		return entry + ".mjs"
	}
	return entry
}

// IsTypeScript reports whether a file name has a TypeScript extension. TypeScript files must be built before they can
// run.
func IsTypeScript(file string) bool {
	return slices.Contains([]string{".ts", ".mts", ".cts", ".tsx"}, path.Ext(file))
}

// checkFiles reports files that the manifest refers to but that are missing from the bundle.
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
			b.report(ruleMissing, ui, 0, "the user interface %s is not in the bundle, or has no index.html", diag.Quote(p.UI))
		}
	}
}

// checkBuilt builds the entrypoint and compares the result with the built file in the bundle. If the bundle is a
// folder without a built file, checkBuilt adds the result to the bundle.
func (b *Bundle) checkBuilt(entry string) {
	there := b.Tree.Find(Built(entry))
	if there == nil && b.archived {
		b.report(ruleBuild, entry, 0, "the bundle was packed without the built file of %s", diag.Quote(entry))
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
		b.report(ruleOtherBuild, Built(entry), 0, "%s differs from the result of building %s", diag.Quote(Built(entry)),
			diag.Quote(entry))
	}
}

// reserved matches the environment variables that control the sandbox and the runtimes. A bundle must not set them.
var reserved = regexp.MustCompile(`^(?:PATH|HOME|TMPDIR|USER|LANG|LC_.*|LD_.*|NODE_.*|PYTHON.*|UV_.*|(?:HTTPS?|ALL` +
	`|NO)_PROXY|SSL_CERT_.*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|OPENSSL_.*|GCONV_PATH|AMBIT_.*)$`)

func (b *Bundle) checkVariables(a *agent.Agent) {
	for _, e := range a.Program.Env {
		if reserved.MatchString(e.Name) {
			b.report(ruleVariable, ManifestName, 0, "the manifest sets the variable %s, which is reserved for the sandbox",
				diag.Quote(e.Name))
		}
	}
	for _, s := range a.Slots {
		if reserved.MatchString(s.Env) {
			b.report(ruleVariable, ManifestName, 0,
				"the credential slot %s uses the variable %s, which is reserved for the sandbox",
				diag.Quote(s.Ref), diag.Quote(s.Env))
		}
	}
}

// describeCompiled describes the kind of compiled code in a file. It returns "" if the file is not compiled code.
func describeCompiled(f *File) string {
	for _, m := range []struct{ begin, what string }{
		{"\x7fELF", "a program or library for Linux"},
		{"\xfe\xed\xfa\xce", "a program or library for macOS"},
		{"\xfe\xed\xfa\xcf", "a program or library for macOS"},
		{"\xce\xfa\xed\xfe", "a program or library for macOS"},
		{"\xcf\xfa\xed\xfe", "a program or library for macOS"},
		{"\xca\xfe\xba\xbe", "a program for several processors, or a Java class"},
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
		return "a program or library according to its file name"
	case ".pyc", ".pyo", ".jsc":
		return "compiled code for an interpreter"
	}
	return ""
}

func (b *Bundle) checkSecrets(f *File) {
	for _, m := range secret.Standard().Scan(f.Data, nil, nil) {
		b.report(ruleSecret, f.Path, lineAt(f.Data, m.Start), "%s contains a secret (%s)", diag.Quote(f.Path), m.Rule)
	}
}

// lineAt returns the line number at a byte offset. The first line has the number 1.
func lineAt(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

var code = []string{".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".py", ".sh", ".html"}

var address = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:https?` +
		`|wss?)://([a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+|localhost|\[[0-9a-f:.]+\])`)
})

// checkHosts reports the hosts in a code file that are missing from the manifest's allowed_hosts. Each host is
// reported once per file.
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
		b.report(ruleHost, f.Path, lineAt(f.Data, m[0]), "%s refers to the host %s, which is not in allowed_hosts",
			diag.Quote(f.Path), diag.Quote(host))
	}
}
