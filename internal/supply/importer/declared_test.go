package importer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serverOf returns the command, the arguments and the variables of the only server of a result, separated by spaces.
func serverOf(t *testing.T, r *Result, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	var got struct {
		Servers []struct {
			Command, Endpoint string
			Args, Env         []string
			Headers           map[string]string
		} `json:"servers"`
	}
	if err := json.Unmarshal(r.Text, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Servers[0]
	for _, name := range sorted(s.Headers) {
		s.Env = append(s.Env, name+": "+s.Headers[name])
	}
	return strings.Join(append(append([]string{s.Command + s.Endpoint}, s.Args...), s.Env...), " ")
}

// An optional input of a server.json stays optional, and its default is used.
func TestDeclaredInputs(t *testing.T) {
	for parts, want := range map[string]string{
		`"environmentVariables": [{"name": "API_KEY", "isRequired": true, "isSecret": true}, {"name": "PROXY_TOKEN", "isSecret": true}]`: "npx -y notes@1.0.0 API_KEY=$env:API_KEY",
		`"environmentVariables": [{"name": "REGION", "default": "eu-west-1"}, {"name": "FLAVOR", "default": "vanilla"}, {"name": "N"}]`:  "npx -y notes@1.0.0 REGION=eu-west-1 FLAVOR=vanilla",
		`"environmentVariables": [{"name": "FLAVOR", "isRequired": true}]`:                                                               "npx -y notes@1.0.0 FLAVOR=$env:FLAVOR",
		`"packageArguments": [{"type": "named", "name": "--verbose"}, {"type": "named", "name": "--port", "default": "8080"}]`:           "npx -y notes@1.0.0 --port 8080",
		`"packageArguments": [{"type": "named", "name": "--verbose", "format": "boolean", "default": "true"}]`:                           "npx -y notes@1.0.0 --verbose",
		`"packageArguments": [{"type": "positional", "valueHint": "target_dir", "isRequired": true}]`:                                    "npx -y notes@1.0.0 $env:NOTES_TARGET_DIR",
		`"packageArguments": [{"type": "named", "name": "--api-key", "isRequired": true, "isSecret": true, "default": "canary-7f3a91"}]`: "npx -y notes@1.0.0 --api-key $env:NOTES_API_KEY",
		`"packageArguments": [{"type": "named", "name": "--header", "value": "X-Key: {key}", "variables": {"key": {"isSecret": true}}}]`: "npx -y notes@1.0.0 --header X-Key: $env:KEY",
	} {
		file := filepath.Join(t.TempDir(), "server.json")
		text := `{"name": "io.example/notes", "version": "1.0.0", "packages": [{"registryType": "npm", "identifier": "notes", "version": "1.0.0", ` + parts + `}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Import(file, filepath.Dir(file))
		if got := serverOf(t, r, err); got != want {
			t.Errorf("%s was imported as %s, want %s", parts, got, want)
		}
	}
}

// The settings of a bundle become their defaults. A required setting without a default becomes a reference. An optional
// one is left out together with its flag. The runtime of the bundle is kept.
func TestBundleSettings(t *testing.T) {
	const settings = `"user_config": {
		"key": {"type": "string", "sensitive": true, "required": true}, "extra": {"type": "string", "sensitive": true},
		"dir": {"type": "directory", "default": "${HOME}/notes"}, "dirs": {"type": "directory", "multiple": true, "default": ["/a", "/b"]},
		"verbose": {"type": "boolean"}, "region": {"type": "string", "default": "eu-west-1"}, "flavor": {"type": "string", "default": "vanilla"}}`
	for program, want := range map[string]string{
		`"type": "node", "entry_point": "index.js", "mcp_config": {"command": "node", "args": ["${__dirname}/index.js", "--extra", "${user_config.extra}", "--dir", "${user_config.dir}"]}`:               "node ./notes/index.js --dir $env:HOME/notes",
		`"type": "node", "entry_point": "index.js", "mcp_config": {"command": "node", "args": ["${__dirname}/index.js", "${user_config.dirs}", "--verbose=${user_config.verbose}"]}`:                      "node ./notes/index.js /a /b --verbose=false",
		`"type": "node", "entry_point": "index.js", "mcp_config": {"command": "node", "args": ["${__dirname}/index.js", "--verbose"], "env": {"KEY": "${user_config.key}", "X": "${user_config.extra}"}}`: "node ./notes/index.js --verbose KEY=$env:KEY",
		`"type": "node", "entry_point": "index.js", "mcp_config": {"command": "node", "args": ["${__dirname}/index.js"], "env": {"REGION": "${user_config.region}", "FLAVOR": "${user_config.flavor}"}}`:  "node ./notes/index.js FLAVOR=vanilla REGION=eu-west-1",
		`"type": "python", "entry_point": "server.py"`: "python3 ./notes/server.py",
		`"type": "uv", "entry_point": "src/server.py"`: "uv --directory DIR/notes run src/server.py",
		`"type": "uv", "entry_point": "src/server.py", "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "src/server.py"]}`: "uv run --directory DIR/notes src/server.py",
		`"type": "binary", "entry_point": "server"`: "./notes/server",
	} {
		path := archive(t, file{name: "manifest.json", text: `{"manifest_version": "0.4", "name": "notes", "version": "1.0.0", "server": {` + program + `}, ` + settings + `}`})
		dir := t.TempDir()
		r, err := Import(path, dir)
		if got := strings.ReplaceAll(serverOf(t, r, err), filepath.ToSlash(dir), "DIR"); got != want {
			t.Errorf("%s was imported as %s, want %s", program, got, want)
		}
	}
}

// The folders of a configuration and the working folder of a server are kept.
func TestFolders(t *testing.T) {
	for entry, want := range map[string]string{
		`{"command": "node", "args": ["${workspaceFolder}/build/index.js", "${workspaceFolder}"]}`:              "node ./build/index.js .",
		`{"command": "npx", "args": ["-y", "fs-mcp", "${workspaceFolder}/docs", "${userHome}/notes"]}`:          "npx -y fs-mcp ./docs $env:HOME/notes",
		`{"command": "${CLAUDE_PLUGIN_ROOT}/bin/server", "args": ["--data", "${CLAUDE_PLUGIN_ROOT}/data"]}`:     "./bin/server --data DIR/data",
		`{"command": "node", "args": ["${CLAUDE_PLUGIN_ROOT}/dist/index.js"]}`:                                  "node ./dist/index.js",
		`{"command": "node", "args": ["dist/index.js", "./data"], "cwd": "/srv"}`:                               "node /srv/dist/index.js /srv/data",
		`{"command": "node", "args": ["dist/index.js"], "cwd": "${workspaceFolder}/server"}`:                    "node ./server/dist/index.js",
		`{"command": "./run", "cwd": "${workspaceFolder}"}`:                                                     "./run",
		`{"command": "uv", "args": ["run", "server.py"], "cwd": "/srv"}`:                                        "uv --directory /srv run server.py",
		`{"command": "npm", "args": ["run", "start"], "cwd": "/srv"}`:                                           "npm --prefix /srv run start",
		`{"command": "npx", "args": ["-y", "fs-mcp", "."], "cwd": "/srv"}`:                                      "npx -y fs-mcp /srv",
		`{"command": "npx", "args": ["-y", "fs-mcp"], "env": {"DATA_DIR": "${workspaceFolder}/data"}}`:          "npx -y fs-mcp DATA_DIR=./data",
		`{"command": "npx", "args": ["-y", "fs-mcp", "${DIR:-/srv/docs}"]}`:                                     "npx -y fs-mcp /srv/docs",
		`{"command": "npx", "args": ["-y", "fs-mcp", "--region", "${REGION}"], "env": {"REGION": "eu-west-1"}}`: "npx -y fs-mcp --region eu-west-1 REGION=eu-west-1",
		`{"command": "npx", "args": ["-y", "fs-mcp"], "envFile": "${workspaceFolder}/.env"}`:                    "npx -y fs-mcp API_KEY=$env:API_KEY REGION=$env:REGION",
		`{"command": "cargo", "args": ["run"], "cwd": "/srv"}`:                                                  "no server in the file can be imported: server notes: the command cargo needs its working folder (cwd), which a manifest cannot express: start the server's program by its path",
	} {
		file := configuration(t, `"notes": `+entry)
		dir := filepath.Dir(file)
		// The last three lines can be keys, in base64 and base32.
		text := "# keys\nexport API_KEY='canary-7f3a91c4d2'\nREGION=eu\njZzWdmxKjaoCFQpbGSrBdpwb==\nxTq==\nJBSWY3DPEHPK3PXPJBSWY3DP=\n"
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Import(file, dir)
		got := strings.ReplaceAll(serverOf(t, r, err), filepath.ToSlash(dir), "DIR")
		if got != want || r != nil && strings.Contains(string(r.Text), canary) {
			t.Errorf("%s was imported as %s, want %s", entry, got, want)
		}
		for _, key := range []string{"jZzWdmx", "xTq", "JBSWY3DP"} {
			if r != nil && strings.Contains(fmt.Sprint(r.Notes), key) {
				t.Errorf("the notes about %s contain a key: %v", entry, r.Notes)
			}
		}
	}
}

// A wrapper around a server is replaced with the server.
func TestWrappers(t *testing.T) {
	for entry, want := range map[string]string{
		`{"command": "npx", "args": ["-y", "mcp-remote@latest", "https://mcp.example.com/mcp"]}`:                                                                                                               "https://mcp.example.com/mcp",
		`{"command": "npx", "args": ["mcp-remote", "https://mcp.example.com/sse", "9876", "--transport", "sse-only", "--allow-http"]}`:                                                                         "https://mcp.example.com/sse",
		`{"command": "npx", "args": ["mcp-remote", "https://mcp.example.com/mcp", "--header", "Authorization: Bearer ${TOKEN}"]}`:                                                                              "https://mcp.example.com/mcp Authorization: Bearer $env:TOKEN",
		`{"command": "npx", "args": ["mcp-remote", "https://mcp.example.com/mcp", "--header", "Authorization:${AUTH}"], "env": {"AUTH": "Bearer canary-7f3a91c4d2"}}`:                                          "https://mcp.example.com/mcp Authorization: Bearer $env:NOTES_AUTHORIZATION",
		`{"command": "cmd", "args": ["/c", "npx", "mcp-remote", "https://mcp.example.com/mcp", "--header=X-Region: eu-west-1"]}`:                                                                               "https://mcp.example.com/mcp X-Region: eu-west-1",
		`{"command": "npx", "args": ["mcp-remote", "https://mcp.example.com/${TEAM}/mcp"]}`:                                                                                                                    "no server in the file can be imported: server notes: the address refers to a variable, which a manifest cannot express: write the address itself",
		`{"command": "docker", "args": ["run", "-i", "--rm", "--mount", "type=bind,src=/home/me/a,dst=/projects/a", "--mount", "type=bind,src=/home/me/b,dst=/projects/b,ro", "mcp/filesystem", "/projects"]}`: "npx -y @modelcontextprotocol/server-filesystem /home/me/a /home/me/b",
		`{"command": "docker", "args": ["run", "-i", "--rm", "-v", "/srv/repo:/repo", "mcp/git:latest", "--repository", "/repo/x"]}`:                                                                           "uvx mcp-server-git --repository /srv/repo/x",
		`{"command": "docker", "args": ["run", "--rm", "-i", "-e", "BRAVE_API_KEY", "docker.io/mcp/brave-search"], "env": {"BRAVE_API_KEY": "canary-7f3a91c4d2"}}`:                                             "npx -y @brave/brave-search-mcp-server BRAVE_API_KEY=$env:BRAVE_API_KEY",
		`{"command": "docker", "args": ["run", "-i", "--entrypoint", "node", "mcp/filesystem", "x.js"]}`:                                                                                                       "docker run -i --entrypoint node mcp/filesystem x.js",
		`{"command": "docker", "args": ["run", "-i", "--rm", "corp/notes@sha256:0000000000000000000000000000000000000000000000000000000000000000"]}`:                                                           "docker run -i --rm corp/notes@sha256:0000000000000000000000000000000000000000000000000000000000000000",
	} {
		r, err := Import(configuration(t, `"notes": `+entry), ".")
		if got := serverOf(t, r, err); got != want || r != nil && strings.Contains(string(r.Text), canary) {
			t.Errorf("%s was imported as %s, want %s", entry, got, want)
		}
	}
}
