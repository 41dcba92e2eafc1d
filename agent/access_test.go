package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// classes returns an agent with a server s and one callable tool for each class, named do_CLASS.
func classes(server agent.Server, list ...agent.SideEffect) *agent.Agent {
	server.Alias = "s"
	if server.Transport == "" {
		server.Transport = agent.Stdio
	}
	a := &agent.Agent{Servers: []agent.Server{server}}
	for _, class := range list {
		a.Tools = append(a.Tools, agent.Tool{Name: "do_" + string(class), SideEffect: class, Binding: agent.OnServer{Alias: "s"}})
	}
	return a
}

func rights(access agent.Access) string {
	var list []string
	for _, r := range access {
		list = append(list, r.String())
	}
	return strings.Join(list, ", ")
}

func TestAccess(t *testing.T) {
	args := agent.Server{Args: []string{"-y", "pkg@1.0.0", "/data", "https://api.example.com/v1"}}
	const public = "connect to any public host"
	only := func(allowed ...agent.SideEffect) func(*agent.Agent) {
		return func(a *agent.Agent) { a.SideEffects = agent.SideEffectPolicy{Restricted: true, Allowed: allowed} }
	}
	tests := []struct {
		name  string
		agent *agent.Agent
		with  func(*agent.Agent)
		want  string
	}{
		{"no tools", classes(args), nil, "read /data"},
		{"read", classes(args, agent.Read), nil, "read /data"},
		{"write", classes(args, agent.Read, agent.Write), nil, "write /data"},
		{"network", classes(args, agent.Network), nil, "read /data, connect to api.example.com"},
		{"shell", classes(args, agent.Shell), nil, "start any program, write /data, connect to api.example.com"},
		{"chain counts as shell", classes(args, agent.Chain), nil, "start any program, write /data, connect to api.example.com"},
		{"an unknown class counts as shell", classes(args, "telepathy"), nil, "start any program, write /data, connect to api.example.com"},
		{"no class counts as shell", classes(args, ""), nil, "start any program, write /data, connect to api.example.com"},
		{"a network tool, but no host", classes(agent.Server{}, agent.Network), nil, public},
		{"a shell tool, but no host", classes(agent.Server{}, agent.Shell), nil, "start any program, " + public},
		{"nothing named", classes(agent.Server{}, agent.Read, agent.Write), nil, ""},
		{"tools that the manifest blocks do not count", classes(args, agent.Read, agent.Write, agent.Network, agent.Shell), only(agent.Read), "read /data"},
		{"tools of another server do not count", classes(args, agent.Shell), func(a *agent.Agent) {
			a.Tools[0].Binding = agent.OnServer{Alias: "other"}
		}, "read /data"},
		{"tools without a server do not count", classes(args, agent.Shell), func(a *agent.Agent) {
			a.Tools[0].Binding = agent.HTTP{Host: "api.example.com"}
		}, "read /data"},
		{"a server on another machine", classes(agent.Server{Transport: agent.StreamableHTTP, Endpoint: "https://mcp.example.com"}, agent.Shell), nil, ""},
		{"a hosted agent", (&agent.Agent{
			Dialect: agent.FindAgent, Tools: []agent.Tool{{Name: "t", SideEffect: agent.Shell, Binding: agent.HTTP{}}},
			Delivery: agent.Delivery{Exec: "findagent-hosted", URL: "https://mcp.example.com"},
		}).Remote(), nil, ""},
		{"the same path twice", classes(agent.Server{Args: []string{"/data", "/data/", "--dir=/data/."}}), nil, "read /data"},
		{"files in system folders", classes(agent.Server{Args: []string{"--executable-path=/usr/bin/chromium", "/etc/ssl/a.pem", "/usrdata"}},
			agent.Write), nil, "read /usr/bin/chromium, read /etc/ssl/a.pem, write /usrdata"},
		{"settings", classes(agent.Server{Env: []agent.Setting{{Name: "FILE", Value: "/data/x.db"}, {Name: "URL", Value: "https://a.example.com"}}},
			agent.Network), nil, "read /data/x.db, connect to a.example.com"},
		{"a sandbox has its own home", classes(agent.Server{Env: []agent.Setting{
			{Name: "HOME", Value: "$env:HOME"}, {Name: "PATH", Value: "/opt/bin:/usr/bin"}, {Name: "TMPDIR", Value: "/tmp"},
		}}), nil, ""},
		{"secrets are not resolved", classes(agent.Server{Env: []agent.Setting{
			{Name: "DIR", Value: "$env:DIR"},
			{Name: "SUB", Value: "/data/$env:TENANT"},
			{Name: "API_HOST", Value: "$env:REGION.example.com"},
			{Name: "DB", Value: "postgres://$env:DB_USER:$env:DB_PASSWORD@db.example.com/x"},
		}}, agent.Network), nil, "connect to db.example.com"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.with != nil {
				tt.with(tt.agent)
			}
			access := tt.agent.Access(&tt.agent.Servers[0])
			if got := rights(access); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for _, r := range access {
				if r.Reason == "" {
					t.Errorf("%s has no reason", r)
				}
			}
		})
	}
}

func TestAccessReasons(t *testing.T) {
	a := classes(agent.Server{
		Args: []string{"/data"},
		Env:  []agent.Setting{{Name: "DB", Value: "postgres://u:secret@localhost:5432/x"}},
	}, agent.Write, agent.Network)
	want := []string{
		"named in its arguments, and its tool do_write writes",
		"named in its setting DB, and its tool do_network connects; " +
			"the address is local, so the right takes effect only with: ambit allow --private",
	}
	for i, r := range a.Access(&a.Servers[0]) {
		if r.Reason != want[i] {
			t.Errorf("%s: got the reason %q, want %q", r, r.Reason, want[i])
		}
	}
}

// Access derives rights only from clear cases in arguments and settings. The owner must allow everything else.
func TestAccessMentions(t *testing.T) {
	tests := []struct {
		text         string // an argument, or NAME: value for a setting
		paths, hosts string
	}{
		{"/x", "/x", ""},
		{".", ".", ""},
		{"./notes/", "notes", ""},
		{"~", "~", ""},
		{"~/notes/../x", "~/x", ""},
		{"$env:HOME/x", "$env:HOME/x", ""},
		{"--root=/x", "/x", ""},
		{"root=/x", "/x", ""},
		{"-f=/x", "/x", ""},
		{"/a,/b", "/a /b", ""},
		{"/a:/b", "/a /b", ""},
		{"--dirs=/a,~/b,./c", "/a ~/b c", ""},
		{"/a,b", "/a,b", ""},
		{"/a/../etc/shadow", "/etc/shadow", ""},
		{`C:\Users\me`, `C:\Users\me`, ""},
		{"file:///x/my%20files", "/x/my files", ""},
		{"sqlite:///var/db.sqlite?mode=ro", "/var/db.sqlite", ""},
		{"sqlite:////var/db.sqlite", "/var/db.sqlite", ""},

		{"-f/x", "", ""},
		{"/", "", ""},
		{"--base-path=/", "", ""},
		{"//", "", ""},
		{"/..", "", ""},
		{"..", "", ""},
		{"../../../..", "", ""},
		{"./../..", "", ""},
		{"~/..", "", ""},
		{"$env:HOME/../other", "", ""},
		{"$env:HOMEPAGE/x", "", ""},
		{"/a/$env:NAME", "", ""},
		{"/proc/1/environ", "", ""},
		{"/run/docker.sock", "", ""},
		{"/var/run/docker.sock", "", ""},
		{"/srv/../dev/sda", "", ""},
		{"unix:///var/run/docker.sock", "", ""},
		{"file://server/share", "", "server"},
		{"file:///%zz", "", ""},
		{"dist/index.js", "", ""},
		{`["/a"]`, "", ""},

		{"https://api.example.com", "", "api.example.com"},
		{"https://API.Example.COM./v1/etc/passwd?q=/x", "", "api.example.com"},
		{"--url=https://api.example.com:8443/x", "", "api.example.com:8443"},
		{"https://a.example.com,https://b.example.com/x", "", "a.example.com b.example.com"},
		{"postgres://u:p@db.example.com:5432/x", "", "db.example.com:5432"},
		{"postgres://u:p@ss,w@db.example.com:5432/x", "", "db.example.com:5432"},
		{"mongodb://u:p@a.example.com:1,b.example.com:2/x", "", "a.example.com:1 b.example.com:2"},
		{"jdbc:sqlserver://db.example.com:1433;user=me", "", "db.example.com:1433"},
		{"redis://host", "", "host"},
		{"redis://:pw@localhost:6379", "", "localhost:6379"},
		{"wss://stream.example.com/x", "", "stream.example.com"},
		{"http://[2001:db8::1]:8080/", "", "[2001:db8::1]:8080"},
		{"http://[::1]/", "", "::1"},
		{"http://10.0.0.7/", "", "10.0.0.7"},
		{"db.example.com:05432", "", "db.example.com:5432"},
		{"localhost:5432", "", "localhost:5432"},
		{"1.2.3.4:80", "", "1.2.3.4:80"},
		{"[::1]:5432", "", "[::1]:5432"},
		{"a.example.com:1,b.example.com:2", "", "a.example.com:1 b.example.com:2"},
		{"--db-host=db.example.com", "", "db.example.com"},
		{"API_HOSTS: a.example.com,b.example.com", "", "a.example.com b.example.com"},
		{"ENDPOINT: api.example.com", "", "api.example.com"},

		{"api.example.com", "", ""},
		{"server.js", "", ""},
		{"--config=app.json", "", ""},
		{"--host=0.0.0.0", "", ""},
		{"HOST: localhost", "", ""},
		{"user:12345", "", ""},
		{"12:30", "", ""},
		{"db.example.com:0", "", ""},
		{"db.example.com:99999", "", ""},
		{"http://127.1/", "", ""},
		{"http://0x7f.0x1/", "", ""},
		{"http://2130706433/", "", ""},
		{"http://[fe80::1%25eth0]/", "", ""},
		{"https://*.example.com", "", ""},
		{"https://exämple.com", "", ""},
		{"git@github.com:ambit-run/ambit", "", ""},
		{"@scope/pkg@1.2.3", "", ""},
		{"Mozilla/5.0 (+https://example.com/bot)", "", ""},
		{`{"url":"https://example.com"}`, "", ""},
		{"https://$env:TENANT.example.com/", "", ""},
		{"$env:DB_HOST:5432", "", ""},

		// A password can contain every separator. No part of it becomes a host.
		{"postgres://user:12/34@db.example.com/x", "", ""},
		{"postgres://user:12#34@db.example.com/x", "", ""},
		{"postgres://user:12,b://c@db.example.com/x", "", ""},
		{"user:12,a.b:34@db.example.com", "", ""},
		{"postgres://user:1@2.example.com:3/4@db.example.com/x", "", ""},
		{"https://token/x@db.example.com", "", ""},
		{"https://registry.example.com/@scope/pkg", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			s := agent.Server{Args: []string{tt.text}}
			if name, value, ok := strings.Cut(tt.text, ": "); ok {
				s = agent.Server{Env: []agent.Setting{{Name: name, Value: value}}}
			}
			a := classes(s, agent.Network)
			access := a.Access(&a.Servers[0])
			what := func(kind agent.RightKind) string {
				var list []string
				for _, r := range access.Of(kind) {
					list = append(list, r.What)
				}
				return strings.TrimPrefix(strings.Join(list, " "), agent.Any)
			}
			if got := what(agent.CanRead); got != tt.paths {
				t.Errorf("got the paths %q, want %q", got, tt.paths)
			}
			if got := what(agent.CanConnect); got != tt.hosts {
				t.Errorf("got the hosts %q, want %q", got, tt.hosts)
			}
			if got := what(agent.CanWrite) + what(agent.CanExecute); got != "" {
				t.Errorf("got %q, want no right to write or execute", got)
			}
		})
	}
}

func TestAccessAllows(t *testing.T) {
	read, write := agent.CanRead, agent.CanWrite
	connect, execute := agent.CanConnect, agent.CanExecute
	tests := []struct {
		have, want agent.Right
		allows     bool
	}{
		{agent.Right{Kind: read, What: "/a"}, agent.Right{Kind: read, What: "/a", Reason: "another"}, true},
		{agent.Right{Kind: read, What: "/a"}, agent.Right{Kind: read, What: "/a/b"}, true},
		{agent.Right{Kind: read, What: "/a"}, agent.Right{Kind: read, What: "/ab"}, false},
		{agent.Right{Kind: read, What: "/a/b"}, agent.Right{Kind: read, What: "/a"}, false},
		{agent.Right{Kind: read, What: "/a"}, agent.Right{Kind: write, What: "/a"}, false},
		{agent.Right{Kind: write, What: "/a"}, agent.Right{Kind: read, What: "/a/b"}, true},
		{agent.Right{Kind: write, What: "/"}, agent.Right{Kind: write, What: "/a"}, true},
		{agent.Right{Kind: connect, What: agent.Any}, agent.Right{Kind: connect, What: "a.example.com"}, true},
		{agent.Right{Kind: connect, What: agent.Any}, agent.Right{Kind: connect, What: "db:1", Private: true}, false},
		{agent.Right{Kind: connect, What: agent.Any}, agent.Right{Kind: execute, What: "git"}, false},
		{agent.Right{Kind: connect, What: "a.example.com"}, agent.Right{Kind: connect, What: "a.example.com:443"}, true},
		{agent.Right{Kind: connect, What: "a.example.com:443"}, agent.Right{Kind: connect, What: "a.example.com"}, false},
		{agent.Right{Kind: connect, What: "a.example.com"}, agent.Right{Kind: connect, What: agent.Any}, false},
		{agent.Right{Kind: execute, What: "git"}, agent.Right{Kind: execute, What: "sh"}, false},
		{agent.Right{Kind: execute, What: agent.Any}, agent.Right{Kind: execute, What: "sh"}, true},
	}
	for _, tt := range tests {
		if got := (agent.Access{tt.have}).Allows(tt.want); got != tt.allows {
			t.Errorf("%s allows %s: got %t, want %t", tt.have, tt.want, got, tt.allows)
		}
	}
	with := agent.Access{{Kind: read, What: "/a"}}.With(agent.Access{{Kind: write, What: "/a"}, {Kind: read, What: "/a"}})
	if !slices.Equal(with, agent.Access{{Kind: write, What: "/a"}}) {
		t.Errorf("got %v, want only the right to write", with)
	}
}

// Whatever the password is, no part of it becomes a right or a reason.
func FuzzAccessPassword(f *testing.F) {
	for _, password := range []string{"secret", "12/34", "1@b.example.com:2/3", "a,b://c", "/x", "p#q?r;s", ",c.example.com:4"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		value := "postgres://user:" + password + "@db.example.com:5432/x"
		a := classes(agent.Server{Args: []string{value, "--url=" + value}, Env: []agent.Setting{{Name: "DB_HOST", Value: value}}}, agent.Shell)
		for _, r := range a.Access(&a.Servers[0]) {
			if r.What != agent.Any && r.What != "db.example.com:5432" || r.Reason != "" && strings.Contains(r.Reason, "user:") {
				t.Errorf("%q: got %s (%s)", value, r, r.Reason)
			}
		}
	})
}
