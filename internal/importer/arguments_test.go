package importer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestWithoutSecrets takes commands that run the same without what may be a secret.
func TestWithoutSecrets(t *testing.T) {
	for line, want := range map[string]string{
		`"node", "--no-warnings", "server.js", "hunter22"`:                                        "node --no-warnings server.js",
		`"deno", "run", "-A", "server.ts", "hunter22"`:                                            "deno run -A server.ts",
		`"npm", "exec", "--", "mysql-mcp", "hunter22"`:                                            "npm exec -- mysql-mcp",
		`"npx", "--no", "mysql-mcp", "hunter22"`:                                                  "npx --no mysql-mcp",
		`"npx", "-y", "--prefer-offline", "mysql-mcp@1.2.3", "hunter22"`:                          "npx -y --prefer-offline mysql-mcp@1.2.3",
		`"npx", "--prefer-offline", "mysql-mcp", "-p", "summer-2024"`:                             "npx --prefer-offline mysql-mcp -p",
		`"uv", "run", "--frozen", "server.py", "hunter22"`:                                        "uv run --frozen server.py",
		`"python3", "-I", "server.py", "hunter22"`:                                                "python3 -I server.py",
		`"docker", "run", "--privileged", "corp/image", "hunter22"`:                               "docker run --privileged corp/image",
		`"node", "run", "hunter22"`:                                                               "node run",
		`"sudo", "-u", "nobody", "npx", "k8s-mcp", "hunter22"`:                                    "sudo -u nobody npx k8s-mcp",
		`"docker", "run", "-i", "-eLogin=swordfish", "corp/image"`:                                "docker run -i -e Login corp/image",
		`"docker", "container", "run", "-i", "-e", "DB_LOGIN=swordfish", "corp/image"`:            "docker container run -i -e DB_LOGIN corp/image",
		`"nerdctl", "run", "-e", "DB_LOGIN=swordfish", "i"`:                                       "nerdctl run -e DB_LOGIN i",
		`"mysql-mcp", "Admin@12"`:                                                                 "mysql-mcp",
		`"mysql-mcp", "--pass", "swordfish", "--stdio"`:                                           "mysql-mcp --stdio",
		`"mysql-mcp", "--db-pass=swordfish", "--stdio"`:                                           "mysql-mcp --stdio",
		`"mysql-mcp", "--user=me:swordfish", "--stdio"`:                                           "mysql-mcp --stdio",
		`"mysql-mcp", "-u", "me:swordfish", "--stdio"`:                                            "mysql-mcp --stdio",
		`"mysql-mcp", "--header=X-Api-Key: swordfish", "--stdio"`:                                 "mysql-mcp --stdio",
		`"mysql-mcp", "-HX-Key:abc12", "--stdio"`:                                                 "mysql-mcp --stdio",
		`"mcp-remote", "https://corp.example/mcp", "--header=Authorization:Bearer swordfish"`:     "mcp-remote https://corp.example/mcp",
		`"npx", "-y", "mcp-remote", "https://corp.example/mcp", "--header", "X-Key: -swordfish"`:  "npx -y mcp-remote https://corp.example/mcp",
		`"npx", "-y", "mcp-remote", "https://corp.example/mcp", "--header", "X-Key:${SWORDFISH}"`: "npx -y mcp-remote https://corp.example/mcp",
	} {
		r, err := Import(commandLine(t, line), ".")
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var got struct {
			Servers []struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
			} `json:"servers"`
		}
		if err := json.Unmarshal(r.Text, &got); err != nil {
			t.Fatal(err)
		}
		if s := got.Servers[0]; !slices.Equal(append([]string{s.Command}, s.Args...), strings.Fields(want)) {
			t.Errorf("%s became %s %q", line, s.Command, s.Args)
		}
		if strings.Contains(string(r.Text), "swordfish") {
			t.Errorf("%s: the secret is in\n%s", line, r.Text)
		}
	}
}

// TestHeldElsewhere: what one command was refused for is copied from no other.
func TestHeldElsewhere(t *testing.T) {
	_, err := Import(commandLine(t, `"mysql-mcp", "-pHunter22x"]}, "other": {"command": "/opt/Hunter22x/y", "args": [`), ".")
	if _, ok := errors.AsType[*Error](err); !ok || strings.Contains(err.Error(), "Hunter22x") {
		t.Errorf("got %v", err)
	}
}
