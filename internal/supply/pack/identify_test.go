package pack

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

func TestIdentify(t *testing.T) {
	const v = "2026.8.31"
	for _, c := range []struct {
		name     string
		command  string // the words of the command, separated by spaces
		declared string
		want     Ref
	}{
		{"npx with yes", "npx -y @scope/server@2026.8.31 /tmp --x", v, Ref{Kind: NPM, Name: "@scope/server", Version: v, Asked: v, Args: []string{"/tmp", "--x"}}},
		{"npx without a version", "npx server", v, Ref{Kind: NPM, Name: "server", Version: v}},
		{"npx with latest", "npx server@latest", v, Ref{Kind: NPM, Name: "server", Version: v, Asked: "latest"}},
		{"npx with a matching range", "npx server@^2026.8.0", v, Ref{Kind: NPM, Name: "server", Version: v, Asked: "^2026.8.0"}},
		{"npx with a double hyphen before", "npx --yes -- server -y", v, Ref{Kind: NPM, Name: "server", Version: v, Args: []string{"-y"}}},
		{"npx with a double hyphen after", "npx server -- -y", v, Ref{Kind: NPM, Name: "server", Version: v, Args: []string{"--", "-y"}}},
		{"npx with a package and its program", "npx -y -p @scope/server@2026.8.31 run-it a", v, Ref{Kind: NPM, Name: "@scope/server", Version: v, Asked: v, Bin: "run-it", Args: []string{"a"}}},
		{"npx with --package=", "npx --package=server run-it", v, Ref{Kind: NPM, Name: "server", Version: v, Bin: "run-it"}},
		{"bunx", "bunx server", v, Ref{Kind: NPM, Name: "server", Version: v}},
		{"pnpx", "pnpx server", v, Ref{Kind: NPM, Name: "server", Version: v}},
		{"pnpm dlx", "pnpm dlx server a", v, Ref{Kind: NPM, Name: "server", Version: v, Args: []string{"a"}}},
		{"npm exec with a double hyphen", "npm exec -y -- server --flag", v, Ref{Kind: NPM, Name: "server", Version: v, Args: []string{"--flag"}}},
		{"npm exec with a double hyphen after", "npm exec server a -- --flag", v, Ref{Kind: NPM, Name: "server", Version: v, Args: []string{"a", "--flag"}}},
		{"npx by its path", "/usr/bin/npx server", v, Ref{Kind: NPM, Name: "server", Version: v}},
		{"npx in a Windows shell", "cmd /c npx -y server@2026.8.31", v, Ref{Kind: NPM, Name: "server", Version: v, Asked: v}},
		{"npx.cmd", `C:\node\npx.cmd server`, v, Ref{Kind: NPM, Name: "server", Version: v}},
		{"a version only in the arguments", "npx server@1.2.3", "sha256:" + strings.Repeat("a", 64), Ref{Kind: NPM, Name: "server", Version: "1.2.3", Asked: "1.2.3"}},
		{"uvx", "uvx mcp-server-git --repo x", "1.0.0", Ref{Kind: PyPI, Name: "mcp-server-git", Version: "1.0.0", Args: []string{"--repo", "x"}}},
		{"uvx with ==", "uvx mcp-server-git==1.0", "1.0.0", Ref{Kind: PyPI, Name: "mcp-server-git", Version: "1.0", Asked: "1.0"}},
		{"uvx with @", "uvx mcp-server-git@1.0.0", "1.0.0", Ref{Kind: PyPI, Name: "mcp-server-git", Version: "1.0.0", Asked: "1.0.0"}},
		{"uvx with latest", "uvx mcp-server-git@latest", "1.0.0", Ref{Kind: PyPI, Name: "mcp-server-git", Version: "1.0.0", Asked: "latest"}},
		{"uvx with from and extras", "uvx --from some.pkg[cli,x]==2.0rc1 tool a", "2.0.0-rc.1", Ref{Kind: PyPI, Name: "some.pkg", Version: "2.0rc1", Asked: "2.0rc1", Bin: "tool", Extras: []string{"cli", "x"}, Args: []string{"a"}}},
		{"uvx with a Python version", "uvx --python 3.12 pkg", "1.0.0", Ref{Kind: PyPI, Name: "pkg", Version: "1.0.0", Runtime: "python3.12"}},
		{"uv tool run", "uv tool run --from=pkg==1.0.0 tool", "1.0.0", Ref{Kind: PyPI, Name: "pkg", Version: "1.0.0", Asked: "1.0.0", Bin: "tool"}},
		{"pipx run", "pipx run --spec pkg==1.0.0 tool", "1.0.0", Ref{Kind: PyPI, Name: "pkg", Version: "1.0.0", Asked: "1.0.0", Bin: "tool"}},
		{"a file for node", "node --no-warnings ./server.mjs --port 1", "1.0.0", Ref{Kind: File, Name: "./server.mjs", Version: "1.0.0", Runtime: "node", Flags: []string{"--no-warnings"}, Args: []string{"--port", "1"}}},
		{"a file for Python", "python3 -u server.py -x", "1.0.0", Ref{Kind: File, Name: "server.py", Version: "1.0.0", Runtime: "python3", Flags: []string{"-u"}, Args: []string{"-x"}}},
		{"a file for Bun", "bun run index.ts", "1.0.0", Ref{Kind: File, Name: "index.ts", Version: "1.0.0", Runtime: "bun", Flags: []string{"run"}}},
		{"a program by path", "./bin/server a", "1.0.0", Ref{Kind: File, Name: "./bin/server", Version: "1.0.0", Args: []string{"a"}}},
		{"a program on PATH", "my-server a", "1.0.0", Ref{Kind: Program, Name: "my-server", Version: "1.0.0", Args: []string{"a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			words := strings.Fields(c.command)
			got, err := Identify(agent.Server{Transport: agent.Stdio, Command: words[0], Args: words[1:], Version: c.declared})
			if err != nil {
				t.Fatal(err)
			}
			if !sameRef(got, c.want) {
				t.Errorf("got  %s\nwant %s", jsonText(got, true), jsonText(c.want, true))
			}
		})
	}
}

func sameRef(a, b Ref) bool {
	return a.Kind == b.Kind && a.Name == b.Name && a.Version == b.Version && a.Asked == b.Asked && a.Bin == b.Bin && a.Runtime == b.Runtime &&
		slices.Equal(a.Extras, b.Extras) && slices.Equal(a.Flags, b.Flags) && slices.Equal(a.Args, b.Args)
}

func TestIdentifyRefuses(t *testing.T) {
	for _, c := range []struct {
		name, command string
		code          Code
	}{
		{"another version in the arguments", "npx server@1.0.0", VersionConflict},
		{"a range that does not match", "npx server@^1.0.0", VersionConflict},
		{"another version for Python", "uvx pkg==1.0", VersionConflict},
		{"two packages", "npx -p a -p b c", Unpinnable},
		{"a shell line", "npx -c ls", Unpinnable},
		{"an unknown option", "npx --registry=x server", Unpinnable},
		{"no package", "npx -y", Unpinnable},
		{"a package option without a value", "npx -p", Unpinnable},
		{"a package without a program", "npx -p server", Unpinnable},
		{"an address", "npx https://example.com/x.tgz", Unpinnable},
		{"a repository", "npx github:user/repo", Unpinnable},
		{"a GitHub repository in short form", "npx user/repo", Unpinnable},
		{"a folder", "npx ./server", Unpinnable},
		{"an alias for a package", "npx x@npm:y@1.0.0", Unpinnable},
		{"a program that is an option", "npx -p server -- --eval", Unpinnable},
		{"npm exec with an option that npm would parse", "npm exec server --flag", Unpinnable},
		{"a Python range", "uvx pkg>=1.0", Unpinnable},
		{"Python extra packages", "uvx --with other pkg", Unpinnable},
		{"a Python repository", "uvx git+https://example.com/x", Unpinnable},
		{"code on the command line", "node -e 1", Unpinnable},
		{"a file that loads another first", "node --import ./hook.mjs server.mjs", Unpinnable},
		{"a Python module", "python3 -m server", Unpinnable},
		{"an interpreter without a file", "python3", Unpinnable},
		{"a shell", "bash -c ls", Unpinnable},
		{"a container", "docker run image", Unpinnable},
		{"a script of package.json", "bun run start", Unpinnable},
		{"a Windows shell", "cmd /c dir", Unpinnable},
	} {
		t.Run(c.name, func(t *testing.T) {
			words := strings.Fields(c.command)
			ref, err := Identify(agent.Server{Transport: agent.Stdio, Command: words[0], Args: words[1:], Version: "2026.8.31"})
			if !errors.Is(err, c.code) {
				t.Errorf("got %+v, %v; want %s", ref, err, c.code)
			}
		})
	}
	if _, err := Identify(agent.Server{Transport: agent.Stdio}); !errors.Is(err, Unpinnable) {
		t.Errorf("a server without a command: got %v, want %s", err, Unpinnable)
	}
}

func TestIdentifyRemote(t *testing.T) {
	ref, err := Identify(agent.Server{Transport: agent.StreamableHTTP, Endpoint: "https://example.com/mcp", Version: "1.0.0"})
	if err != nil || ref.Kind != Remote || ref.Name != "https://example.com/mcp" {
		t.Errorf("got %+v, %v", ref, err)
	}
}

// FuzzIdentify checks that Identify returns an error or a consistent reference for any command. No
// client can mistake the name in the reference for an option. The arguments in the reference are the
// end of the command line.
func FuzzIdentify(f *testing.F) {
	for _, s := range []string{
		"npx -y @a/b@1.0.0 x", "npx -p a b", "uvx --from a[b]==1 c -- d", "node x.mjs", "python3 -u a.py", "cmd /c npx a", "npm exec a -- -b",
		"npx", "pipx run --spec", "uv tool run a@latest", "bun run a.ts", "./x", "", "npx --package=a@1.0.0 b",
	} {
		f.Add(s, "1.0.0")
	}
	f.Fuzz(func(t *testing.T, line, version string) {
		words := strings.Split(line, " ")
		ref, err := Identify(agent.Server{Transport: agent.Stdio, Command: words[0], Args: words[1:], Version: version})
		if err != nil {
			if CodeOf(err) == "" || err.Error() == "" {
				t.Fatalf("the error has no code or no text: %v", err)
			}
			return
		}
		if !slices.Contains(Kinds, ref.Kind) || ref.Name == "" || len(ref.Args) > len(words) {
			t.Fatalf("the kind, the name or the number of arguments is invalid: %+v", ref)
		}
		if ref.Kind == NPM || ref.Kind == PyPI {
			if strings.HasPrefix(ref.Name, "-") || strings.HasPrefix(ref.Bin, "-") || strings.ContainsAny(ref.Name, " :\\") {
				t.Fatalf("a client could mistake the name for something else: %+v", ref)
			}
			if !strings.Contains(words[1+ref.spec], ref.Name) {
				t.Fatalf("the package is not in argument %d: %+v", ref.spec, ref)
			}
			if ref.Version != "" && !IsExact(ref.Kind, ref.Version) {
				t.Fatalf("the version is not an exact version: %+v", ref)
			}
		}
		if n := len(ref.Args); n > 0 && ref.Args[n-1] != words[len(words)-1] {
			t.Fatalf("the last argument is missing: %+v", ref)
		}
	})
}

func TestPEP440(t *testing.T) {
	for _, same := range [][]string{
		{"1.0", "1.0.0", "v1", "1.0.0.0"},
		{"1.0rc1", "1.0.0-rc.1", "1.0-RC1", "1.0.0c1", "1.0pre1"},
		{"1.0a0", "1.0.alpha", "1.0-alpha.0"},
		{"2!1.0", "2!1"},
	} {
		for _, v := range same[1:] {
			if !sameVersion(PyPI, same[0], v) {
				t.Errorf("sameVersion(%s, %s) is false, want true", same[0], v)
			}
		}
	}
	for _, other := range []string{"1.0.1", "1.0rc1", "1.0.post1", "10", "1!1.0"} {
		if sameVersion(PyPI, "1.0", other) {
			t.Errorf("sameVersion(1.0, %s) is true, want false", other)
		}
	}
}

// A right that a person added belongs to a program, so no two programs are identified by the same text.
func TestProgramOf(t *testing.T) {
	long := strings.Repeat("a", 60)
	const secret = " ghp_0123456789abcdefghijABCDEFGHIJ012345"
	program := func(argv ...string) string {
		return ProgramOf(agent.Server{Transport: agent.Stdio, Command: argv[0], Args: argv[1:], Version: "1.0.0"})
	}
	for _, c := range []struct {
		name      string
		one, same []string
		other     []string
	}{
		{"code after 60 bytes", []string{"node", "-e", long + " good()"}, nil, []string{"node", "-e", long + " evil()"}},
		{"an image", []string{"docker", "run", long, "good/image"}, nil, []string{"docker", "run", long, "evil/image"}},
		{"text that looks like a secret", []string{"sh", "-c", "good" + secret}, nil, []string{"sh", "-c", "evil" + secret}},
		{"words", []string{"sh", "-c", "a b"}, nil, []string{"sh", "-c", "a", "b"}},
		{"the interpreter", []string{"node", "main.mjs"}, []string{"node", "main.mjs", "--port=1"}, []string{"./evil/node", "main.mjs"}},
		{"the interpreter's options", []string{"python3", "main.py"}, nil, []string{"python3", "-b", "main.py"}},
		{"an unknown interpreter", []string{"lua", "good.lua"}, nil, []string{"lua", "evil.lua"}},
		{"an unknown interpreter by path", []string{"./lua", "good.lua"}, nil, []string{"./lua", "evil.lua"}},
		{"a package", []string{"npx", "server@1.0.0"}, []string{"npx", "-y", "server", "/tmp"}, []string{"npx", "other@1.0.0"}},
	} {
		if one, other := program(c.one...), program(c.other...); one == other {
			t.Errorf("%s: ProgramOf returned %s for both programs, want different results", c.name, one)
		}
		if one := program(c.one...); c.same != nil && program(c.same...) != one {
			t.Errorf("%s: got %s, want %s", c.name, program(c.same...), one)
		}
	}
}
