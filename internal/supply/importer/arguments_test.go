package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A possible secret becomes a reference, so that the command keeps its meaning.
func TestWithoutSecrets(t *testing.T) {
	for line, want := range map[string]string{
		`"node", "--no-warnings", "server.js", "hunter22"`:                                         "node --no-warnings server.js $env:NOTES_ARGUMENT_3",
		`"deno", "run", "-A", "server.ts", "hunter22"`:                                             "deno run -A server.ts $env:NOTES_ARGUMENT_4",
		`"npm", "exec", "--", "mysql-mcp", "hunter22"`:                                             "npm exec -- mysql-mcp $env:NOTES_ARGUMENT_4",
		`"npx", "--no", "mysql-mcp", "hunter22"`:                                                   "npx --no mysql-mcp $env:NOTES_ARGUMENT_3",
		`"npx", "-y", "--prefer-offline", "mysql-mcp@1.2.3", "hunter22"`:                           "npx -y --prefer-offline mysql-mcp@1.2.3 $env:NOTES_ARGUMENT_4",
		`"npx", "--prefer-offline", "mysql-mcp", "-p", "summer-2024"`:                              "npx --prefer-offline mysql-mcp -p $env:NOTES_P",
		`"uv", "run", "--frozen", "server.py", "hunter22"`:                                         "uv run --frozen server.py $env:NOTES_ARGUMENT_4",
		`"python3", "-I", "server.py", "hunter22"`:                                                 "python3 -I server.py $env:NOTES_ARGUMENT_3",
		`"docker", "run", "--privileged", "corp/image", "hunter22"`:                                "docker run --privileged corp/image $env:NOTES_ARGUMENT_4",
		`"node", "run", "hunter22"`:                                                                "node run $env:NOTES_ARGUMENT_2",
		`"sudo", "-u", "nobody", "npx", "k8s-mcp", "hunter22"`:                                     "sudo -u nobody npx k8s-mcp $env:NOTES_ARGUMENT_5",
		`"docker", "run", "-i", "-eLogin=swordfish", "corp/image"`:                                 "docker run -i -e Login corp/image",
		`"docker", "container", "run", "-i", "-e", "DB_LOGIN=swordfish", "corp/image"`:             "docker container run -i -e DB_LOGIN corp/image",
		`"nerdctl", "run", "-e", "DB_LOGIN=swordfish", "i"`:                                        "nerdctl run -e DB_LOGIN i",
		`"mysql-mcp", "Admin@12"`:                                                                  "mysql-mcp $env:NOTES_ARGUMENT_1",
		`"mysql-mcp", "--pass", "swordfish", "--stdio"`:                                            "mysql-mcp --pass $env:NOTES_PASS --stdio",
		`"mysql-mcp", "--db-pass=swordfish", "--stdio"`:                                            "mysql-mcp --db-pass=$env:NOTES_DB_PASS --stdio",
		`"mysql-mcp", "--user=me:swordfish", "--stdio"`:                                            "mysql-mcp --user=$env:NOTES_USER --stdio",
		`"mysql-mcp", "-u", "me:swordfish", "--stdio"`:                                             "mysql-mcp -u $env:NOTES_U --stdio",
		`"mysql-mcp", "--header=X-Api-Key: swordfish", "--stdio"`:                                  "mysql-mcp --header=X-Api-Key: $env:NOTES_X_API_KEY --stdio",
		`"mysql-mcp", "-HX-Key:abc12", "--stdio"`:                                                  "mysql-mcp -HX-Key:$env:NOTES_X_KEY --stdio",
		`"mcp-remote", "https://corp.example/mcp", "--header=Authorization:Bearer swordfish"`:      "https://corp.example/mcp",
		`"npx", "-y", "mcp-remote", "https://corp.example/mcp", "--header", "X-Key: -swordfish"`:   "https://corp.example/mcp",
		`"npx", "-y", "mcp-remote", "https://corp.example/mcp", "--header", "X-Key:${SWORDFISH}"`:  "https://corp.example/mcp",
		`"fs-mcp", "--disable-auth", "/safe/dir", "/other"`:                                        "fs-mcp --disable-auth $env:NOTES_DISABLE_AUTH /other",
		`"fs-mcp", "--disable-auth", "safe", "/other"`:                                             "fs-mcp --disable-auth $env:NOTES_DISABLE_AUTH /other",
		`"fs-mcp", "--skip-token-check", "safe", "/other"`:                                         "fs-mcp --skip-token-check $env:NOTES_SKIP_TOKEN_CHECK /other",
		`"fs-mcp", "--allow-credentials=origin"`:                                                   "fs-mcp --allow-credentials=$env:NOTES_ALLOW_CREDENTIALS",
		`"fs-mcp", "--authMode-token", "cli"`:                                                      "fs-mcp --authMode-token cli",
		`"fs-mcp", "--auth", "none"`:                                                               "fs-mcp --auth none",
		`"fs-mcp", "--auth=none"`:                                                                  "fs-mcp --auth=none",
		`"fs-mcp", "--auth", "azcli"`:                                                              "fs-mcp --auth azcli",
		`"fs-mcp", "--auth", "corporate"`:                                                          "fs-mcp --auth $env:NOTES_AUTH",
		`"fs-mcp", "--authentication-token", "true"`:                                               "fs-mcp --authentication-token true",
		`"fs-mcp", "--credentials", "./creds.json"`:                                                "fs-mcp --credentials ./creds.json",
		`"fs-mcp", "--credentials=creds.json"`:                                                     "fs-mcp --credentials=$env:NOTES_CREDENTIALS",
		`"fs-mcp", "--token", "/other"`:                                                            "fs-mcp --token $env:NOTES_TOKEN",
		`"npx", "-y", "mcp-remote", "https://mcp.supabase.com/mcp?read_only=true&project_ref=abc"`: "https://mcp.supabase.com/mcp?read_only=true&project_ref=abc",
		`"npx", "mcp-remote", "https://corp.example/api/v2Beta1/OAuth2/mcp"`:                       "https://corp.example/api/v2Beta1/OAuth2/mcp",
		`"foo", "--server", "a1b2c3d4e5f6a7b8c9d0", "--x"`:                                         "foo --server $env:NOTES_SERVER --x",
		`"foo", "--db", "pass word1", "--x"`:                                                       "foo --db $env:NOTES_DB --x",
		`"uvx", "--from=git+https://host.example/corp1", "serve"`:                                  "uvx --from=git+https://host.example/corp1 serve",
		`"pipx", "run", "--spec=git+ssh://git@host.example/x1", "serve"`:                           "pipx run --spec=git+ssh://git@host.example/x1 serve",
		`"node", "server.js", "--config", "${CFG}", "--read-only"`:                                 "node server.js --config $env:CFG --read-only",
		`"node", "server.js", "--allow=${DIR}"`:                                                    "node server.js --allow=$env:DIR",
		`"mysql-mcp", "-p", "summer-2024", "--stdio"`:                                              "mysql-mcp -p $env:NOTES_P --stdio",
		`"mysql-mcp", "-p=summer-2024"`:                                                            "mysql-mcp -p=$env:NOTES_P",
		`"start", "API_TOKEN=swordfish", "x"`:                                                      "start API_TOKEN=$env:NOTES_API_TOKEN x",
		`"docker", "-H", "ssh://build@corp.example", "run", "-i", "corp/image"`:                    "docker -H ssh://build@corp.example run -i corp/image",
		`"mysql-mcp", "--name", "hunter22", "--stdio"`:                                             "mysql-mcp --name $env:NOTES_NAME --stdio",
		`"mysql-mcp", "-ume:swordfish"`:                                                            "mysql-mcp -u$env:NOTES_U",
		`"mysql-mcp", "--conn=Server=x;Password=swordfish"`:                                        "mysql-mcp --conn=$env:NOTES_CONN",
		`"mysql-mcp", "--json", "{\"password\": \"swordfish\"}"`:                                   "mysql-mcp --json $env:NOTES_JSON",
		`"mysql-mcp", "--add-header", "Authorization: Bearer swordfish"`:                           "mysql-mcp --add-header $env:NOTES_ADD_HEADER",
		`"mysql-mcp", "-pHunter22"`:                                                                "mysql-mcp -p$env:NOTES_P",
		`"mysql-mcp", "-uroot:Hunter22", "-pHunter22"`:                                             "mysql-mcp -u$env:NOTES_U $env:NOTES_ARGUMENT_2",
		`"mysql-mcp", "--password", "-Sw0rdfish"`:                                                  "mysql-mcp --password $env:NOTES_PASSWORD",
		`"mysql-mcp", "--password", "--Sw0rdfish"`:                                                 "mysql-mcp --password $env:NOTES_PASSWORD",
		`"mysql-mcp", "Admin@12", "--stdio"`:                                                       "mysql-mcp $env:NOTES_ARGUMENT_1 --stdio",
		`"npx", "-y", "gateway", "--stdio", "foo --password swordfish"`:                            "npx -y gateway --stdio $env:NOTES_STDIO",
	} {
		s, text, err := importLine(t, line)
		if err != nil || strings.Join(s, " ") != want {
			t.Errorf("%s was imported as %q, %v; want %s", line, s, err, want)
		}
		if strings.Contains(text, "swordfish") || strings.Contains(text, "unter22") {
			t.Errorf("%s: the result contains the secret:\n%s", line, text)
		}
	}
}

// A command can be refused because of a possible secret. If another server in the file contains the same secret, it is
// not copied there either.
func TestHeldElsewhere(t *testing.T) {
	for _, arg := range []string{"-pHunter22x", "--password Hunter22x", "--login:Hunter22x"} {
		_, err := Import(commandLine(t, `"mysql-mcp", "`+arg+`"]}, "other": {"command": "/opt/Hunter22x/y", "args": [`), ".")
		if _, ok := errors.AsType[*Error](err); !ok || strings.Contains(err.Error(), "Hunter22x") {
			t.Errorf("%s: got %v, want an *Error without the secret", arg, err)
		}
	}
}

// Secrets in unusual places in a command become references, or the server is not imported. In the latter
// case the expected command is empty.
func TestNotInClear(t *testing.T) {
	for line, want := range map[string]string{
		// In these commands, an argument contains an option and its value.
		`"npx", "-y", "foo", "--password swordfish"`:                   "npx -y foo $env:NOTES_ARGUMENT_3",
		`"npx", "-y", "foo", "--password\u00a0swordfish"`:              "npx -y foo $env:NOTES_ARGUMENT_3",
		`"npx", "-y", "foo", "--api-key swordfish", "--x"`:             "npx -y foo $env:NOTES_ARGUMENT_3 --x",
		`"npx", "--api-key swordfish", "foo"`:                          "",
		`"foo", "--args=--password swordfish"`:                         "foo --args=$env:NOTES_ARGS",
		`"foo", "--label password=swordfish"`:                          "foo $env:NOTES_ARGUMENT_1",
		`"foo", "-HX-Key: swordfish=="`:                                "foo -HX-Key: $env:NOTES_X_KEY",
		`"docker", "run", "-i", "--rm", "img", "--password swordfish"`: "docker run -i --rm img $env:NOTES_ARGUMENT_5",
		`"foo", "--token:swordfish", "--x"`:                            "foo --token:$env:NOTES_TOKEN --x",
		`"foo", "-token:swordfish", "--x"`:                             "foo -token:$env:NOTES_TOKEN --x",
		`"foo", "--api-key:swordfish"`:                                 "foo --api-key:$env:NOTES_API_KEY",
		`"foo", "--token:swordfish=="`:                                 "foo --token:$env:NOTES_TOKEN",
		`"npx", "--token:swordfish", "k8s-mcp"`:                        "",
		`"foo", "--key:sword9fish"`:                                    "foo --key:$env:NOTES_KEY",
		`"foo", "--login:sword9fish"`:                                  "foo --login:$env:NOTES_LOGIN",
		// In these commands, options begin with a slash, as on Windows.
		`"srv.exe", "/apikey:swordfish"`:               "srv.exe $env:NOTES_ARGUMENT_1",
		`"sqlpackage", "/SourcePassword:swordfish"`:    "sqlpackage $env:NOTES_ARGUMENT_1",
		`"sqlpackage", "/x", "/SourcePassword:Sword9"`: "sqlpackage /x $env:NOTES_ARGUMENT_2",
		// In these commands, an address contains a user and a password.
		`"foo", "--hosts=https://es-a.example.com,https://elastic:swordfish@es-b.example.com"`: "foo --hosts=$env:NOTES_HOSTS",
		`"foo", "https://es-a.example.com,https://elastic:swordfish@es-b.example.com"`:         "foo $env:NOTES_ARGUMENT_1",
		`"foo", "--host", "admin:swordfish@db.example.com"`:                                    "foo --host $env:NOTES_HOST",
		`"foo", "--host=admin:swordfish@db.example.com"`:                                       "foo --host=$env:NOTES_HOST",
		`"foo", "--host", "admin:swordfish@db.example.com", "--x"`:                             "foo --host $env:NOTES_HOST --x",
		`"foo", "admin:swordfish@db.example.com"`:                                              "foo $env:NOTES_ARGUMENT_1",
		// In these commands, the secret looks like a path or a container image.
		`"srv.exe", "/p:sword9fish"`:                      "srv.exe $env:NOTES_ARGUMENT_1",
		`"foo", "-p", "~sword9fish"`:                      "foo -p $env:NOTES_P",
		`"foo", "--sas", "/k3J9dkQ2mZx8sword9fish7Bv5=="`: "foo --sas $env:NOTES_SAS",
		`"uvx", "oracle-mcp", "scott/sword9fish"`:         "uvx oracle-mcp $env:NOTES_ARGUMENT_2",
		`"foo", "--login", "acme/deploy:sword9fish"`:      "foo --login $env:NOTES_LOGIN",
		`"foo", "--login=bob/sword9fish"`:                 "foo --login=$env:NOTES_LOGIN",
		`"foo", "--login", "bob/swordfish"`:               "foo --login $env:NOTES_LOGIN",
		`"foo", "--userid=bob:swordfish", "--x"`:          "foo --userid=$env:NOTES_USERID --x",
		// In these commands, the secret contains no digit.
		`"foo", "-p", "sword!fish"`:                                         "foo -p $env:NOTES_P",
		`"foo", "-p", "swordfish"`:                                          "foo -p $env:NOTES_P",
		`"foo", "-p", "swordfish", "--x"`:                                   "foo -p $env:NOTES_P --x",
		`"npx", "-y", "foo", "-p", "swordfish"`:                             "npx -y foo -p $env:NOTES_P",
		`"foo", "db.example.com", "swordfish#x"`:                            "foo db.example.com $env:NOTES_ARGUMENT_2",
		`"foo", "-k", "sk-swordfishABCdef"`:                                 "foo -k $env:NOTES_K",
		`"foo", "-k", "swordfish+xYz=="`:                                    "foo -k $env:NOTES_K",
		`"foo", "me@example.com", "word fish word fish"`:                    "foo me@example.com $env:NOTES_ARGUMENT_2",
		`"foo", "--wallet", "` + strings.Repeat("word fish ", 6) + `again"`: "foo --wallet $env:NOTES_WALLET",
		// In these commands, the path of an address contains a key.
		`"npx", "mcp-remote", "https://corp.example/k/Zx8sword9fish"`:             "",
		`"npx", "mcp-remote", "https://corp.example/s/bumpy-window-X7sword9fish"`: "",
		// In these commands, the option for the secret has an unusual name.
		`"foo", "--mnemonic", "swordfish"`:    "foo --mnemonic $env:NOTES_MNEMONIC",
		`"foo", "--seed-phrase", "swordfish"`: "foo --seed-phrase $env:NOTES_SEED_PHRASE",
		`"foo", "--seedPhrase=swordfish"`:     "foo --seedPhrase=$env:NOTES_SEEDPHRASE",
		`"foo", "--passcode", "swordfish"`:    "foo --passcode $env:NOTES_PASSCODE",
		`"foo", "--pin", "swordfish"`:         "foo --pin $env:NOTES_PIN",
		`"foo", "--wifi-psk=swordfish"`:       "foo --wifi-psk=$env:NOTES_WIFI_PSK",
		`"foo", "--otp", "swordfish"`:         "foo --otp $env:NOTES_OTP",
		`"foo", "--creds", "swordfish"`:       "foo --creds $env:NOTES_CREDS",
		`"foo", "--password1", "swordfish"`:   "foo --password1 $env:NOTES_PASSWORD1",
		`"foo", "--token2=swordfish"`:         "foo --token2=$env:NOTES_TOKEN2",
		// In these commands, the secret is a part of a longer value.
		`"foo", "--opts", "user:bob,password:swordfish"`: "foo --opts $env:NOTES_OPTS",
		`"foo", "--opts=user:bob,password:swordfish"`:    "foo --opts=$env:NOTES_OPTS",
		`"foo", "{apiKey:swordfish}"`:                    "foo $env:NOTES_ARGUMENT_1",
		`"foo", "{\"pw\":\"swordfish\"}"`:                "foo $env:NOTES_ARGUMENT_1",
		`"foo", "--json={\"a\":1,\"pw\":\"swordfish\"}"`: "foo --json=$env:NOTES_JSON",
		`"sshpass", "-p", "swordfish"`:                   "",
		`"sudo", "sshpass", "-p", "swordfish", "x"`:      "",
		// In these commands, the query of an address contains a secret.
		`"npx", "mcp-remote", "https://corp.example/mcp?key=swordfish"`:        "https://corp.example/mcp",
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

// Shell command lines and contradictory commands are not imported.
func TestBoundsStay(t *testing.T) {
	for _, line := range []string{
		`"fs-mcp", "--credentials", "env"`,
		`"cmd", "/c", "cd", "notes", "&&", "node", "index.js"`,
		`"cmd", "/c", "npx", "fs-mcp", "&&", "pause"`,
		`"cmd.exe", "/C", "call", "run.bat"`,
		// In these commands, a variable is set twice.
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
			t.Errorf("%s: no note reports that the package cannot be pinned: %s", line, text)
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
	file := commandLine(t, line)
	r, err := Import(file, filepath.Dir(file))
	if err != nil {
		return nil, err.Error(), err
	}
	var got struct {
		Servers []struct {
			Command  string   `json:"command"`
			Args     []string `json:"args"`
			Endpoint string   `json:"endpoint"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(r.Text, &got); err != nil {
		t.Fatal(err)
	}
	return append([]string{got.Servers[0].Command + got.Servers[0].Endpoint}, got.Servers[0].Args...), string(r.Text) + fmt.Sprint(r.Notes), nil
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
