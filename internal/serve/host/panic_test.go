package host

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// crashing is a policy that panics.
type crashing struct{ anything }

func (crashing) Judge(context.Context, *agent.Agent, string, *agent.Tool, *call.Call) []call.Reason {
	panic("cannot judge this")
}

func TestPanicIsLogged(t *testing.T) {
	m, err := manifest.Parse("x.json", []byte(`{"schema_version": 1, "agent": "matrix://agent/x", "allowed_side_effects": ["read"], "servers": [
  {"alias": "fs", "transport": "stdio", "command": "x", "version": "1.0.0",
   "package_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
   "tools": [{"name": "read", "side_effect_class": "read"}]}]}`), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := home.At(t.TempDir())
	var log []string
	g, err := Closed(m, Options{
		Home: h, Store: open(t, h), Rules: gate.Rules{Policy: crashing{}},
		Log: func(alias, line string) { log = append(log, alias+": "+line) },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, err = g.Call(t.Context(), &call.Call{Tool: "read", Principal: "me"})
	if r, _ := errors.AsType[*call.Refusal](err); r == nil || r.Stage != gate.Stage || r.Effect != call.NoEffect {
		t.Errorf("the call ended with %v", err)
	}
	if len(log) != 1 || !strings.HasPrefix(log[0], "gateway: warning: ambit failed") || !strings.Contains(log[0], "host.crashing.Judge(") {
		t.Errorf("the log is %q", log)
	}
}
