//go:build unix

package toolserver

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/agent"
)

func TestShareable(t *testing.T) {
	const asks, nothing = `{"elicitation":{}}`, `{}`
	logs := func(r *rig) {
		s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
			//lint:ignore SA1019 servers still support logging
			Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}, Tools: &mcp.ToolCapabilities{}},
		})
		r.at("one", nil, handler(s, false))
	}
	quiet := func(r *rig) {
		s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		})
		r.at("one", nil, handler(s, false))
	}
	for name, tt := range map[string]struct {
		servers      func(*rig)
		older        bool
		capabilities string
		want         string // a part of the reason, or "" if the server can be shared
	}{
		"a local server": {func(r *rig) { r.fake("one", []string{"echo"}) }, true, nothing, ""},
		"a local server and a client that answers questions": {func(r *rig) { r.fake("one", []string{"echo"}) }, true, asks, "ask its client"},
		"a local server and a newer client":                  {func(r *rig) { r.fake("one", []string{"echo"}) }, false, asks, ""},
		"a newer local server": {
			func(r *rig) { r.fake("one", []string{"echo"}, "-do", "modern") }, true, asks, "",
		},
		"a remote server and a client that answers questions": {quiet, true, asks, ""},
		"a server that logs":                    {logs, true, nothing, "log messages"},
		"a server that logs and a newer client": {logs, false, nothing, ""},
		"the second of two servers": {
			func(r *rig) { r.fake("zero", []string{"echo"}); logs(r) }, true, nothing, "server one: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tt.servers(r)
			work, err := ownFolders()
			if err != nil {
				t.Fatal(err)
			}
			err = r.proven().Shareable(tt.older, jsontext.Value(tt.capabilities), work.work)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A server is not shared if it still has an old credential, or if it does not run.
func TestShareableOnlyAsItWouldStart(t *testing.T) {
	r := newRig(t)
	r.referring()
	work, err := ownFolders()
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"CANARY": canary, "OTHER": "other-value"}
	r.o.Lookup = lookup(secrets)
	m := r.proven()
	share := func() error { return m.Shareable(true, nil, work.work) }
	if err := share(); err != nil {
		t.Error(err)
	}
	secrets["CANARY"] += "-new"
	if err := share(); err == nil || !strings.Contains(err.Error(), "was changed after it started") {
		t.Errorf("with a changed credential: %v", err)
	}
	secrets["CANARY"] = canary
	m.Close()
	if err := share(); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("without a running server: %v", err)
	}
}

func TestWorkingFolderOfSharedServer(t *testing.T) {
	top := t.TempDir()
	home, here, there := filepath.Join(top, "home"), filepath.Join(top, "here"), filepath.Join(top, "there")
	r := &rig{t: t, dir: top}
	for _, dir := range []string{"home/x", "here/x", "there/x"} {
		r.write(dir, "")
	}
	t.Setenv("HOME", home)
	t.Chdir(here)
	for name, tt := range map[string]struct {
		args       []string
		env        string
		access     agent.Access
		unconfined bool
		work       string
		want       bool
	}{
		"no files":                   {work: there, want: true},
		"the same folder":            {args: []string{"."}, work: here, want: true},
		"the working folder":         {args: []string{"."}, work: there},
		"a file in it":               {args: []string{"./data"}, work: there},
		"a file beside it":           {args: []string{"../data"}, work: there},
		"a flag":                     {args: []string{"--dir=./data"}, work: there},
		"a list":                     {args: []string{"/data,./data"}, work: there},
		"a setting":                  {env: "./data", work: there},
		"the owner's home":           {args: []string{"~/notes"}, work: there, want: true},
		"a fixed folder":             {access: agent.Access{{Kind: agent.CanWrite, What: "/data"}}, work: there, want: true},
		"the folder of this process": {access: agent.Access{{Kind: agent.CanRead, What: here}}, work: there},
		"the folder of the client":   {access: agent.Access{{Kind: agent.CanRead, What: there}}, work: there},
		"a folder above both":        {access: agent.Access{{Kind: agent.CanRead, What: top}}, work: there},
		"a host with that name":      {access: agent.Access{{Kind: agent.CanConnect, What: top}}, work: there, want: true},
		"a server without a sandbox": {unconfined: true, work: there},
		"the same without a sandbox": {unconfined: true, work: here, want: true},
		"a folder that was deleted":  {work: filepath.Join(top, "gone"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Confine: &Confinement{Access: func(*agent.Server) agent.Access { return tt.access }}}
			if tt.unconfined {
				o.Confine.Unconfined = []string{"one"}
			}
			s := newServer("id", Spec{Server: agent.Server{
				Alias: "one", Args: tt.args, Env: []agent.Setting{{Name: "DIR", Value: tt.env}},
			}}, o)
			defer s.stop()
			if got := s.worksAlikeIn(tt.work); got != tt.want {
				t.Errorf("worksAlikeIn returned %v", got)
			}
		})
	}
	s := newServer("id", Spec{Server: agent.Server{Alias: "one"}}, Options{})
	defer s.stop()
	if s.worksAlikeIn(there) {
		t.Error("without sandboxes, a server works alike in another folder")
	}
}
