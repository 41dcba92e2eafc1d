package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A possible secret is left out if the command still means the same without it.
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
		s, text, err := importLine(t, line)
		if err != nil || !slices.Equal(s, strings.Fields(want)) {
			t.Errorf("%s was imported as %q, %v; want %s", line, s, err, want)
		}
		if strings.Contains(text, "swordfish") {
			t.Errorf("%s: the result contains the secret:\n%s", line, text)
		}
	}
}

// A command can be refused because of a possible secret. The secret is then not copied from another
// server in the file either.
func TestHeldElsewhere(t *testing.T) {
	for _, arg := range []string{"-pHunter22x", "--password Hunter22x", "--login:Hunter22x"} {
		_, err := Import(commandLine(t, `"mysql-mcp", "`+arg+`"]}, "other": {"command": "/opt/Hunter22x/y", "args": [`), ".")
		if _, ok := errors.AsType[*Error](err); !ok || strings.Contains(err.Error(), "Hunter22x") {
			t.Errorf("%s: got %v, want an *Error without the secret", arg, err)
		}
	}
}

// Secrets in unusual places in a command are left out, or the server is not imported. In the latter
// case the expected command is empty.
func TestNotInClear(t *testing.T) {
	for line, want := range map[string]string{
		// An option and its value in one argument.
		`"npx", "-y", "foo", "--password swordfish"`:                   "",
		`"npx", "-y", "foo", "--password\u00a0swordfish"`:              "",
		`"npx", "-y", "foo", "--api-key swordfish", "--x"`:             "",
		`"npx", "--api-key swordfish", "foo"`:                          "",
		`"foo", "--args=--password swordfish"`:                         "",
		`"foo", "--label password=swordfish"`:                          "",
		`"foo", "-HX-Key: swordfish=="`:                                "foo",
		`"docker", "run", "-i", "--rm", "img", "--password swordfish"`: "",
		`"foo", "--token:swordfish", "--x"`:                            "foo --x",
		`"foo", "-token:swordfish", "--x"`:                             "foo --x",
		`"foo", "--api-key:swordfish"`:                                 "foo",
		`"foo", "--token:swordfish=="`:                                 "foo",
		`"npx", "--token:swordfish", "k8s-mcp"`:                        "npx k8s-mcp",
		`"foo", "--key:sword9fish"`:                                    "foo",
		`"foo", "--login:sword9fish"`:                                  "",
		// Options with a slash, as on Windows.
		`"srv.exe", "/apikey:swordfish"`:               "",
		`"sqlpackage", "/SourcePassword:swordfish"`:    "",
		`"sqlpackage", "/x", "/SourcePassword:Sword9"`: "",
		// A user and a password in an address.
		`"foo", "--hosts=https://es-a.example.com,https://elastic:swordfish@es-b.example.com"`: "",
		`"foo", "https://es-a.example.com,https://elastic:swordfish@es-b.example.com"`:         "foo",
		`"foo", "--host", "admin:swordfish@db.example.com"`:                                    "foo --host",
		`"foo", "--host=admin:swordfish@db.example.com"`:                                       "",
		`"foo", "--host", "admin:swordfish@db.example.com", "--x"`:                             "",
		`"foo", "admin:swordfish@db.example.com"`:                                              "foo",
		// Secrets that look like a path or a container image.
		`"srv.exe", "/p:sword9fish"`:                      "srv.exe",
		`"foo", "-p", "~sword9fish"`:                      "foo -p",
		`"foo", "--sas", "/k3J9dkQ2mZx8sword9fish7Bv5=="`: "foo --sas",
		`"uvx", "oracle-mcp", "scott/sword9fish"`:         "uvx oracle-mcp",
		`"foo", "--login", "acme/deploy:sword9fish"`:      "foo",
		`"foo", "--login=bob/sword9fish"`:                 "foo",
		`"foo", "--login", "bob/swordfish"`:               "foo",
		`"foo", "--userid=bob:swordfish", "--x"`:          "foo --x",
		// Secrets without a digit.
		`"foo", "-p", "sword!fish"`:                                         "foo -p",
		`"foo", "-p", "swordfish"`:                                          "foo -p",
		`"foo", "-p", "swordfish", "--x"`:                                   "",
		`"npx", "-y", "foo", "-p", "swordfish"`:                             "npx -y foo -p",
		`"foo", "db.example.com", "swordfish#x"`:                            "foo db.example.com",
		`"foo", "-k", "sk-swordfishABCdef"`:                                 "foo -k",
		`"foo", "-k", "swordfish+xYz=="`:                                    "foo -k",
		`"foo", "me@example.com", "word fish word fish"`:                    "foo me@example.com",
		`"foo", "--wallet", "` + strings.Repeat("word fish ", 6) + `again"`: "foo --wallet",
		// A key in the path of an address.
		`"npx", "mcp-remote", "https://corp.example/k/Zx8sword9fish"`:             "",
		`"npx", "mcp-remote", "https://corp.example/s/bumpy-window-X7sword9fish"`: "",
		// Rarer names of options for secrets.
		`"foo", "--mnemonic", "swordfish"`:    "foo",
		`"foo", "--seed-phrase", "swordfish"`: "foo",
		`"foo", "--seedPhrase=swordfish"`:     "foo",
		`"foo", "--passcode", "swordfish"`:    "foo",
		`"foo", "--pin", "swordfish"`:         "foo",
		`"foo", "--wifi-psk=swordfish"`:       "foo",
		`"foo", "--otp", "swordfish"`:         "foo",
		`"foo", "--creds", "swordfish"`:       "foo",
		`"foo", "--password1", "swordfish"`:   "foo",
		`"foo", "--token2=swordfish"`:         "foo",
		// A secret inside a longer value.
		`"foo", "--opts", "user:bob,password:swordfish"`: "",
		`"foo", "--opts=user:bob,password:swordfish"`:    "",
		`"foo", "{apiKey:swordfish}"`:                    "",
		`"foo", "{\"pw\":\"swordfish\"}"`:                "",
		`"foo", "--json={\"a\":1,\"pw\":\"swordfish\"}"`: "",
		`"sshpass", "-p", "swordfish"`:                   "",
		`"sudo", "sshpass", "-p", "swordfish", "x"`:      "",
		// A secret in the query of an address.
		`"npx", "mcp-remote", "https://corp.example/mcp?key=swordfish"`:        "",
		`"npx", "mcp-remote", "https://corp.example/mcp?a=b&apiKey=swordfish"`: "",
		`"npx", "mcp-remote", "https://corp.example/mcp?profile=sword123fish"`: "",
		`"npx", "mcp-remote", "https://corp.example/mcp?swordfish"`:            "",
		`"npx", "mcp-remote", "https://corp.example/mcp?a=%zz"`:                "",
		`"npx", "https://corp.example/mcp?key=swordfish"`:                      "",
	} {
		s, text, err := importLine(t, line)
		if strings.Contains(text, "swordfish") || strings.Contains(text, "sword9fish") || strings.Contains(text, "word fish") {
			t.Errorf("%s: the result contains the secret:\n%s", line, text)
		}
		if got := strings.Join(s, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%s was imported as %q, %v; want %q", line, got, err, want)
		}
	}
}

// Some options look like options for a secret but could also be limits or switches. A server with such
// an option is not imported. Leaving the option out could give the server more rights.
func TestBoundsStay(t *testing.T) {
	for _, line := range []string{
		`"fs-mcp", "--disable-auth", "/safe/dir", "/other"`,
		`"fs-mcp", "--disable-auth", "safe", "/other"`,
		`"fs-mcp", "--skip-token-check", "safe", "/other"`,
		`"fs-mcp", "--allow-credentials=origin"`,
		`"fs-mcp", "--authMode-token", "cli"`,
		`"fs-mcp", "--auth", "none"`,
		`"fs-mcp", "--auth=none"`,
		`"fs-mcp", "--auth", "azcli"`,
		`"fs-mcp", "--auth", "corporate"`,
		`"fs-mcp", "--credentials", "env"`,
		`"fs-mcp", "--authentication-token", "true"`,
		`"fs-mcp", "--credentials", "./creds.json"`,
		`"fs-mcp", "--credentials=creds.json"`,
		`"fs-mcp", "--token", "/other"`,
		// Command lines for a shell.
		`"cmd", "/c", "cd", "notes", "&&", "node", "index.js"`,
		`"cmd", "/c", "npx", "fs-mcp", "%USERPROFILE%"`,
		`"cmd", "/c", "npx", "fs-mcp", "&&", "pause"`,
		`"cmd.exe", "/C", "call", "run.bat"`,
		// A variable that is set twice.
		`"docker", "run", "-e", "READ_ONLY=false", "-e", "READ_ONLY=true", "corp/image"`,
		`"env", "READ_ONLY=false", "READ_ONLY=true", "fs-mcp"`,
	} {
		if s, _, err := importLine(t, line); err == nil || !strings.Contains(err.Error(), "no server in the file can be imported: server notes: ") {
			t.Errorf("%s was imported as %q, %v; want an error", line, s, err)
		}
	}
}

// Arguments that look unusual but cannot be secrets are copied unchanged.
func TestPlainlyNoSecret(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a1b2c3d", 8)
	for _, line := range []string{
		`"npx", "-y", "mcp-remote", "https://mcp.supabase.com/mcp?read_only=true&project_ref=abc"`,
		`"uvx", "--from", "git+https://github.com/oraios/serena", "serena", "start-mcp-server"`,
		`"uvx", "--from", "git+https://github.com/corp1/tool@v1.2.3", "tool"`,
		`"docker", "run", "-i", "--rm", "postgres` + digest + `"`,
		`"docker", "run", "-i", "--rm", "node:22-alpine` + digest + `", "server.js"`,
		`"foo", "--server", "db1.example.com", "--database", "main"`,
		`"foo", "--db", "mydb1", "--readonly"`,
		`"foo", "--db-host=db1.example.com", "--schema", "v2", "--bucket", "logs-2024"`,
		`"foo", "--disable-auth", "--port", "8080"`,
		`"docker", "run", "-v", "/srv/auth:/auth", "-v", "/secrets:/secrets:ro", "corp/image"`,
		`"deno", "run", "-A", "npm:notes@latest"`,
		`"foo", "--title=My notes"`,
		`"foo", "--lang", "c++", "--say", "Hello, world!", "--glob", "src/*.ts"`,
		`"docker", "run", "-i", "--rm", "ghcr.io/corp1/k8s-mcp-server:1.20.3"`,
		`"docker", "run", "-i", "--rm", "corp/x9y9z:2024-a1b2c3d"`,
		`"foo", "--repo", "corp1/tool-v2", "/srv/data-2024/x"`,
		`"npx", "mcp-remote", "https://corp.example/api/v2Beta1/OAuth2/mcp"`,
	} {
		s, text, err := importLine(t, line)
		var want []string
		if err := json.Unmarshal([]byte("["+line+"]"), &want); err != nil {
			t.Fatal(err)
		}
		if err != nil || !slices.Equal(s, want) {
			t.Errorf("%s was imported as %q, %v; want it unchanged", line, s, err)
		}
		if strings.Contains(line, "git+https") && !strings.Contains(text, "does not come from a registry, so ambit cannot pin it") {
			t.Errorf("%s: no note says that the package cannot be pinned: %s", line, text)
		}
	}
	for _, line := range []string{
		`"uvx", "--from", "git+https://me:swordfish@host.example/tool", "tool"`,
		`"uvx", "--from", "git+https://host.example/tool?ref=main", "tool"`,
		`"uvx", "--from", "git+https://me@host.example/tool", "tool"`,
		`"docker", "run", "a1b2c3d4e5f6a7b8c9d0` + digest + `", "serve"`,
		`"docker", "run", "corp/image:ghp_Zx81Kq77Lm2Zx81Kq77Lm2Zx81Kq77Lm2Abc", "serve"`,
		`"uvx", "--from", "git+https://host.example/tool#x", "tool"`,
		`"uvx", "--from", "git+ssh://git@host.example/tool", "tool"`,
		`"foo", "--server", "a1b2c3d4e5f6a7b8c9d0", "--x"`,
		`"foo", "--db", "pass word1", "--x"`,
	} {
		if s, _, err := importLine(t, line); err == nil || !strings.Contains(err.Error(), "server notes: ") {
			t.Errorf("%s was imported as %q, %v; want an error", line, s, err)
		}
	}
}

// In servers with variables, a working folder or an address, possible secrets become references. A
// server is refused if leaving something out would change its behavior. The expected text is the
// environment of the server, or a part of the error.
func TestEntries(t *testing.T) {
	for entry, want := range map[string]string{
		`{"command": "foo", "env": {"DB_PASSWORD": "$ummer2024xQ9"}}`:                        `DB_PASSWORD=$env:DB_PASSWORD`,
		`{"command": "foo", "env": {"DB_PASSWORD": "{Zx81kq77Lm}"}}`:                         `DB_PASSWORD=$env:DB_PASSWORD`,
		`{"command": "foo", "env": {"DB_PASSWORD": "$MY_PASSWORD"}}`:                         `DB_PASSWORD=$env:MY_PASSWORD`,
		`{"command": "foo", "env": {"DOOR_PIN": "4821"}}`:                                    `DOOR_PIN=$env:DOOR_PIN`,
		`{"command": "docker", "args": ["run", "-e", "TOKEN", "corp/image"]}`:                `TOKEN=$env:TOKEN`,
		`{"command": "docker", "args": ["run", "-e", "N", "corp/image"], "env": {"N": "1"}}`: `N=1`,
		`{"command": "npx", "args": ["-y", "foo"], "cwd": "/srv"}`:                           ``,
		// Refused.
		`{"command": "docker", "args": ["run", "-e", "N=true", "corp/image"], "env": {"N": "false"}}`: "set twice",
		`{"command": "foo", "env": {"READ-ONLY": "true"}}`:                                            "an invalid name",
		`{"command": "npx", "args": "-y foo"}`:                                                        "not a list of strings",
		`{"command": "foo", "args": ["--read-only", true]}`:                                           "not a list of strings",
		`{"command": "node", "args": ["dist/index.js"], "cwd": "/srv"}`:                               "cwd",
		`{"command": "./run", "cwd": "/srv"}`:                                                         "cwd",
		`{"command": "uv", "args": ["run", "foo"], "cwd": "/srv"}`:                                    "cwd",
		`{"url": "https://corp.example/mcp/dB3kq9ZpL2x/sse"}`:                                         "the path of the address could contain a secret",
		`{"url": "https://corp.example/u/8401938475629384756/sse"}`:                                   "the path of the address could contain a secret",
	} {
		r, err := Import(configuration(t, `"notes": `+entry), ".")
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got the error %v, want %q", entry, err, want)
			}
			continue
		}
		var got struct {
			Servers []struct {
				Env []string `json:"env"`
			} `json:"servers"`
		}
		if err := json.Unmarshal(r.Text, &got); err != nil {
			t.Fatal(err)
		}
		if env := strings.Join(got.Servers[0].Env, " "); env != want {
			t.Errorf("%s has the environment %q, want %q", entry, env, want)
		}
	}
}

// One server refers to a variable, and another server has its own value for the same name. The two
// servers get different references.
func TestOneNameTwoMeanings(t *testing.T) {
	for _, entries := range []string{
		`"a": {"command": "foo", "env": {"API_KEY": "${API_KEY}"}}, "b": {"command": "bar", "env": {"API_KEY": "hunter22"}}`,
		`"b": {"command": "bar", "env": {"API_KEY": "hunter22"}}, "z": {"command": "foo", "env": {"API_KEY": "${API_KEY}"}}`,
	} {
		r, err := Import(configuration(t, entries), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"API_KEY=$env:API_KEY"`, `"API_KEY=$env:B_API_KEY"`} {
			if !strings.Contains(string(r.Text), want) {
				t.Errorf("the manifest does not contain %s: %s", want, r.Text)
			}
		}
	}
}

// The password in the URL of a database is withheld everywhere in the file, not only in URLs.
func TestPasswordOfAnAddress(t *testing.T) {
	r, err := Import(configuration(t, `"notes": {"command": "foo", "args": ["/tmp/Zx81Kq77Lm2"], "env": {"DATABASE_URL": "postgres://u:Zx81Kq77Lm2@h/db"}}`), ".")
	if err != nil {
		t.Fatal(err)
	}
	if all := string(r.Text) + fmt.Sprint(r.Notes); strings.Contains(all, "Zx81Kq77Lm2") {
		t.Errorf("the result contains the password:\n%s", all)
	}
}

// importLine imports a server with one command. It returns the words of the imported command, and the
// manifest with all notes as text.
func importLine(t *testing.T, line string) (words []string, text string, err error) {
	t.Helper()
	r, err := Import(commandLine(t, line), ".")
	if err != nil {
		return nil, err.Error(), err
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
	return append([]string{got.Servers[0].Command}, got.Servers[0].Args...), string(r.Text) + fmt.Sprint(r.Notes), nil
}

// The parameters in the query of an address are copied, because they can be limits. Parameters for
// secrets are removed. The address is refused if the meaning of a parameter is not clear.
func TestQueries(t *testing.T) {
	for address, want := range map[string]string{
		"https://corp.example/mcp?read_only=true&features=docs,database": "https://corp.example/mcp?read_only=true&features=docs,database",
		"https://corp.example/mcp?read_only=true&apiKey=swordfish":       "https://corp.example/mcp?read_only=true",
		"https://corp.example/mcp?p=swordfish":                           "",
		"https://corp.example/mcp?country_code=swordfish":                "",
		"https://corp.example/mcp?sortkey=swordfish":                     "",
		"https://corp.example/mcp?project=sword123fish":                  "",
		"https://corp.example/a,https://me:swordfish@corp.example":       "",
	} {
		b := &builder{}
		if got, ok := b.cleanURL("x", address); got != want || ok != (want != "") {
			t.Errorf("%s was imported as %q, %t; want %q", address, got, ok, want)
		}
	}
}
