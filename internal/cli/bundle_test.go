package cli_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

// bundles runs bundles in a real sandbox, with a temporary home.
type bundles struct {
	*testing.T
	home, agents string
}

func newBundles(t *testing.T) *bundles {
	t.Helper()
	sandboxtest.Need(t)
	agents, err := filepath.Abs("../../agents/examples")
	if err != nil {
		t.Fatal(err)
	}
	b := &bundles{t, t.TempDir(), agents}
	t.Setenv("AMBIT_HOME", b.home)
	return b
}

func (b *bundles) run(want int, args ...string) (stdout, stderr string) {
	b.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(b.Context(), args, strings.NewReader(""), &out, &errOut); code != want {
		b.Fatalf("%v: exit code %d, want %d: %s%s", args, code, want, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

func (b *bundles) file(name, text string) string {
	b.Helper()
	file := filepath.Join(b.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		b.Fatal(err)
	}
	return file
}

// The shipped bundles run from a folder, from an archive, and with ambit call.
func TestBundleExamples(t *testing.T) {
	b := newBundles(t)
	out, _ := b.run(0, "bundle", "run", filepath.Join(b.agents, "code-bundle"), "repository_digest", "--input", `{"commits":[{"message":"feat: one","author":"a"}]}`)
	if !strings.Contains(out, "One commit.") {
		t.Errorf("node: %s", out)
	}
	archive := filepath.Join(b.home, "python.tgz")
	b.run(0, "bundle", "pack", filepath.Join(b.agents, "code-bundle-python"), "-o", archive)
	out, _ = b.run(0, "bundle", "run", archive, "profile_table", "--input", `{"csv":"a,b\n1,x\n3,\n"}`, "--json")
	if !strings.Contains(out, `"most": 3`) {
		t.Errorf("python: %s", out)
	}
	// config.toml sets an environment variable that the manifest lists.
	b.file("config.toml", "[bundles.code-bundle-python.env]\nTABLE_MAX_ROWS = \"1\"\n")
	out, _ = b.run(1, "call", filepath.Join(b.agents, "code-bundle-python"), "profile_table", "--input", `{"csv":"a\n1\n2\n"}`)
	if !strings.Contains(out, "more than 1 rows") {
		t.Errorf("with TABLE_MAX_ROWS = 1: %s", out)
	}
	out, _ = b.run(0, "call", filepath.Join(b.agents, "code-bundle-native"), "convert_unit", "--input", `{"value":1,"from":"mi","to":"km"}`)
	if out != "1 mi = 1.609344 km\n" {
		t.Errorf("native: %q", out)
	}
	out, _ = b.run(1, "call", filepath.Join(b.agents, "code-bundle-native"), "convert_unit", "--input", `{"value":1,"from":"mi","to":"kg"}`)
	if !strings.Contains(out, "not units of one kind") {
		t.Errorf("an error that the server reports: %q", out)
	}
	out, _ = b.run(0, "journal", "show", "--json")
	for _, want := range []string{"repository_digest", "profile_table", "convert_unit"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in the journal", want)
		}
	}
}

func TestBundleTypeScript(t *testing.T) {
	b := newBundles(t)
	b.file("typed/findagent.json", `{"name": "Typed Agent", "kind": "code-bundle",
  "system_prompt": "You double numbers with a tool that was written in TypeScript, and say what it said.",
  "tools": [{"name": "double", "description": "Double a number."}],
  "entrypoint": {"path": "agent.ts", "export": "double"}, "runtime": {"kind": "node"}, "mcp": {"mode": "wrap"},
  "allowed_hosts": [], "example_prompts": ["Double 2."]}`)
	b.file("typed/agent.ts", "export const double = async ({ n }: { n: number }, tool: string): Promise<string> => `${tool} ${2 * n}`;\n")
	archive := filepath.Join(b.home, "typed.tgz")
	b.run(0, "bundle", "pack", filepath.Join(b.home, "typed"), "-o", archive)
	for _, path := range []string{archive, filepath.Join(b.home, "typed")} {
		if out, _ := b.run(0, "bundle", "run", path, "double", "--input", `{"n":21}`); out != "double 42\n" {
			t.Errorf("%s: %q", path, out)
		}
	}
}

// A bundle that is an MCP server must advertise exactly the tools that its manifest declares.
func TestBundleNativeDrift(t *testing.T) {
	b := newBundles(t)
	from := os.DirFS(filepath.Join(b.agents, "code-bundle-native"))
	dir := filepath.Join(b.home, "native")
	if err := os.CopyFS(dir, from); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "server", "main.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	b.file("native/server/main.mjs", strings.Replace(string(text), "list_units: {", "list_all_units: {", 1))
	out, _ := b.run(1, "call", dir, "convert_unit", "--input", `{"value":1,"from":"mi","to":"km"}`, "--json")
	if !strings.Contains(out, "server_drifted") || !strings.Contains(out, "list_all_units") {
		t.Errorf("the server advertises a different tool: %s", out)
	}
	b.file("native/server/main.mjs", "process.exit(3);\n")
	if out, _ := b.run(1, "call", dir, "convert_unit", "--input", `{"value":1,"from":"mi","to":"km"}`, "--json"); !strings.Contains(out, "server_unavailable") {
		t.Errorf("the server exits at the start: %s", out)
	}
}

// With --production, the daemon serves a bundle that a person has approved. After a change, the daemon rejects the
// bundle.
func TestBundleInProduction(t *testing.T) {
	b := newBundles(t)
	dir := filepath.Join(b.home, "served", "native")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(b.agents, "code-bundle-native"))); err != nil {
		t.Fatal(err)
	}
	b.run(0, "bundle", "review", dir, "--approve")
	states := func() string {
		d := startDaemon(t, "--production", "--agents", filepath.Join(b.home, "served"))
		defer d.stop()
		_, text := d.ask("GET", "/api/v1/agents", "")
		return text
	}
	if got := states(); !strings.Contains(got, `"state":"ready"`) {
		t.Errorf("the approved bundle is not ready: %s", got)
	}
	b.file("served/native/server/more.mjs", "// one more file\n")
	if got := states(); !strings.Contains(got, `"state":"rejected"`) || !strings.Contains(got, "has not been reviewed") {
		t.Errorf("the changed bundle is not rejected: %s", got)
	}
}
