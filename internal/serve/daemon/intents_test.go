package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/manifest"
)

const echoProgram = "[agent]\nid = \"echo@local\"\nname = \"echo\"\nversion = \"0.1.0\"\nruntime = \"python3\"\nentry = \"main.py\"\n[resources]\nnetwork = \"off\"\n"

// realGateway is a fake agent with a real gateway.
type realGateway struct {
	*fake
	gateway *gateway.Gateway
}

func (b realGateway) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	return b.gateway.Call(ctx, c)
}

// doesAsTold is a fake program that does what the text of an intent says.
type doesAsTold struct{ began chan struct{} }

func (d doesAsTold) Act(ctx context.Context, _ *agent.Tool, c *call.Call) (call.Result, error) {
	switch text := string(c.Arguments); {
	case strings.Contains(text, "fail"):
		return call.Result{}, call.Refuse("act", call.ProgramFailed, "exit_code: it failed")
	case strings.Contains(text, "block"):
		d.began <- struct{}{}
		<-ctx.Done()
		return call.Result{}, call.Refuse("act", call.ProgramFailed, "cancelled: it was ended")
	}
	status := "ok"
	if strings.Contains(string(c.Arguments), "sorry") {
		status = "error"
	}
	raw := fmt.Sprintf(`{"content":[],"structuredContent":{"intent_id":%q,"status":%q,"text":%q,"sources":["s"]}}`, dispatch.UUID(c.ID), status, c.Principal)
	return call.Result{Raw: []byte(raw), IsError: status == "error"}, nil
}

// newIntentRig returns a daemon with a program and with an agent that is not a program.
func newIntentRig(t *testing.T) (*rig, doesAsTold) {
	t.Helper()
	does := doesAsTold{make(chan struct{}, 10)}
	r := newRig(t, map[string]string{"a.json": matrix("a"), "worker.toml": echoProgram}, func(r *rig, o *Options) {
		b := r.store
		o.Served = new(Served)
		desk, err := dispatch.Open(t.Context(), dispatch.Options{Store: b, Gateways: o.Served, Concurrency: 2, Log: r.logf})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			desk.Close(ctx)
		})
		o.Intents, o.OIDC = desk, shortToken{}
		start := o.Start
		o.Start = func(ctx context.Context, name string, m *manifest.Manifest) Running {
			f := start(ctx, name, m).(*fake)
			return realGateway{f, gateway.New(m.Agent(), gateway.Options{Name: name, Binding: does, Store: b, Participants: []gateway.Participant{dispatch.Participant(b, m.Agent(), false)}})}
		}
	})
	return r, does
}

func TestIntents(t *testing.T) {
	r, does := newIntentRig(t)
	mine := r.key(identity.KeySpec{Name: "mine", Principal: "me@local"})
	other := r.key(identity.KeySpec{Name: "other", Principal: "you@local"})
	narrow := r.key(identity.KeySpec{Name: "narrow", Principal: "me@local", Agents: []string{"a"}})

	for _, asked := range []string{"echo@local", "worker"} {
		a := r.ask(mine, "POST", "/api/v1/intents", `{"agent":"`+asked+`","text":"hello","priority":"high"}`)
		if id, _ := a.doc["intent_id"].(string); a.status != http.StatusOK || a.doc["status"] != "ok" || a.doc["text"] != "me@local" || len(id) != 36 {
			t.Errorf("%s: %d %s", asked, a.status, a.body)
		}
	}
	if a := r.ask(mine, "POST", "/api/v1/intents", `{"agent":"worker","text":"fail"}`); a.status != http.StatusBadGateway || a.code() != "program_failed" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for name, tt := range map[string]struct {
		key, body string
		status    int
		says      string
	}{
		"everything wrong":                      {mine, `{"priority":"urgent","parent":"x"}`, 400, `\"agent\" is missing; \"text\" is missing; \"priority\" must be one of low, normal, high; \"parent\"`},
		"an unknown field":                      {mine, `{"agent":"worker","text":"x","more":1}`, 400, ""},
		"no program":                            {mine, `{"agent":"a","text":"x"}`, 400, "not a program"},
		"an agent that does not exist":          {mine, `{"agent":"b","text":"x"}`, 404, ""},
		"an agent outside the scope of the key": {narrow, `{"agent":"echo@local","text":"x"}`, 403, ""},
	} {
		if a := r.ask(tt.key, "POST", "/api/v1/intents", tt.body); a.status != tt.status || !strings.Contains(a.body, tt.says) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}

	a := r.ask(mine, "POST", "/api/v1/intents", `{"agent":"worker","text":"block","wait":false}`)
	id, _ := a.doc["intent_id"].(string)
	if a.status != http.StatusAccepted || id == "" || len(a.doc) != 1 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	<-does.began
	if a := r.ask(mine, "GET", "/api/v1/intents/"+id, ""); a.doc["state"] != "running" || a.doc["principal"] != "me@local" || a.doc["name"] != "worker" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, key := range []string{other, narrow} {
		for _, ask := range [][2]string{{"GET", ""}, {"POST", "/cancel"}} {
			if a := r.ask(key, ask[0], "/api/v1/intents/"+id+ask[1], ""); a.status != http.StatusNotFound {
				t.Errorf("a request for an intent of another principal returned %d: %s", a.status, a.body)
			}
		}
		if a := r.ask(key, "GET", "/api/v1/intents", ""); a.status != http.StatusOK || len(a.doc["intents"].([]any)) != 0 {
			t.Errorf("the list contains intents of another principal: %d %s", a.status, a.body)
		}
	}
	if a := r.ask(mine, "POST", "/api/v1/intents/"+id+"/cancel", ""); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		a := r.ask(mine, "GET", "/api/v1/intents/"+id, "")
		if a.doc["state"] == "cancelled" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the intent was not cancelled: %s", a.body)
		}
	}
	for query, want := range map[string]int{"": 4, "?state=done": 2, "?state=failed&agent=echo@local": 1, "?limit=3": 3, "?before=2020-01-01T00:00:00Z": 0} {
		if a := r.ask(r.admin, "GET", "/api/v1/intents"+query, ""); a.status != http.StatusOK || len(a.doc["intents"].([]any)) != want {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	for _, query := range []string{"?limit=0", "?before=now", "?what=x"} {
		if a := r.ask(r.admin, "GET", "/api/v1/intents"+query, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := r.ask(mine, "GET", "/api/v1/intents/nonsense", ""); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An intent is cancelled when its waiting caller disconnects.
func TestHangingUp(t *testing.T) {
	r, does := newIntentRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", r.server.URL+"/api/v1/intents", strings.NewReader(`{"agent":"worker","text":"block"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.admin)
	go func() { <-does.began; cancel() }()
	if resp, err := r.server.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the cancelled request was answered")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		a := r.ask(r.admin, "GET", "/api/v1/intents?state=cancelled", "")
		if len(a.doc["intents"].([]any)) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the intent is still running")
		}
	}
}

// TestNoWorker removes a program while a caller waits for the program's answer. The caller is
// refused. The intent is cancelled, so that a retry does not run it twice.
func TestNoWorker(t *testing.T) {
	r, does := newIntentRig(t)
	var before []string // take all turns, so that the next intent waits
	for range 2 {
		id, _ := r.ask(r.admin, "POST", "/api/v1/intents", `{"agent":"worker","text":"block","wait":false}`).doc["intent_id"].(string)
		before = append(before, id)
		<-does.began
	}
	answers := make(chan *answer, 1)
	go func() { answers <- r.ask(r.admin, "POST", "/api/v1/intents", `{"agent":"worker","text":"x"}`) }()
	for deadline := time.Now().Add(time.Minute); len(r.ask(r.admin, "GET", "/api/v1/intents?state=queued", "").doc["intents"].([]any)) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the intent is not queued")
		}
	}
	r.write("worker.toml", strings.Replace(echoProgram, "0.1.0", "0.2.0", 1))
	if c, err := r.Reload(t.Context()); err != nil || len(c.Changed) != 1 {
		t.Fatalf("the reload returned %+v, %v", c, err)
	}
	for _, id := range before {
		if a := r.ask(r.admin, "POST", "/api/v1/intents/"+id+"/cancel", ""); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := <-answers
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "no running worker") || !strings.Contains(a.body, `"retryable":true`) {
		t.Errorf("the answer is %d %s", a.status, a.body)
	}
	for deadline := time.Now().Add(time.Minute); len(r.ask(r.admin, "GET", "/api/v1/intents?state=cancelled", "").doc["intents"].([]any)) != 3; {
		if time.Now().After(deadline) {
			t.Fatalf("the intent was not cancelled: %s", r.ask(r.admin, "GET", "/api/v1/intents", "").body)
		}
	}
}

// Queued intents fail if their key is revoked or their token expires. The daemon's temporary key is not
// in the store, but its intents still run.
func TestRevokedWhileIntentsWait(t *testing.T) {
	r, does := newIntentRig(t)
	post := func(key, text string) string {
		t.Helper()
		a := r.ask(key, "POST", "/api/v1/intents", `{"agent":"worker","text":"`+text+`","wait":false}`)
		id, _ := a.doc["intent_id"].(string)
		if a.status != http.StatusAccepted || id == "" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return id
	}
	before := []string{post(r.admin, "block"), post(r.admin, "block")} // uses all turns
	<-does.began
	<-does.began
	k, key, err := r.keys.New(t.Context(), identity.KeySpec{Principal: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{post(key, "x"): "failed", post("eyShort", "x"): "failed", post(r.admin, "x"): "done"}
	if _, err := r.keys.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range before {
		if a := r.ask(r.admin, "POST", "/api/v1/intents/"+id+"/cancel", ""); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for id, state := range want {
		var a *answer
		for deadline := time.Now().Add(time.Minute); ; {
			if a = r.ask(r.admin, "GET", "/api/v1/intents/"+id, ""); a.doc["ended_at"] != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the intent did not end: %s", a.body)
			}
		}
		if a.doc["state"] != state || strings.Contains(a.body, `"code":"approval_denied"`) != (state == "failed") {
			t.Errorf("the intent is not in the state %s: %s", state, a.body)
		}
	}
}

// An answer with the status "error" is an answer, not a problem of the request.
func TestIntentWithErrorStatus(t *testing.T) {
	r, _ := newIntentRig(t)
	a := r.ask(r.admin, "POST", "/api/v1/intents", `{"agent":"worker","text":"sorry"}`)
	if a.status != http.StatusOK || a.doc["status"] != "error" || len(a.doc["sources"].([]any)) != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = r.ask(r.admin, "GET", "/api/v1/intents/"+a.doc["intent_id"].(string), "")
	if answer, _ := a.doc["answer"].(map[string]any); a.doc["state"] != "done" || answer["status"] != "error" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An attacker who can write to the store and has a key cannot read the answer to an intent of another principal or
// agent.
func TestAnswersOfOthers(t *testing.T) {
	r, does := newIntentRig(t)
	mine := r.key(identity.KeySpec{Name: "mine", Principal: "me@local"})
	other := r.key(identity.KeySpec{Name: "other", Principal: "you@local"})
	narrow := r.key(identity.KeySpec{Name: "narrow", Principal: "me@local", Agents: []string{"a"}})
	change := func(set string) {
		t.Helper()
		err := r.store.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE intents SET ` + set)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sees := func(key, id, want string) {
		t.Helper()
		if a := r.ask(key, "GET", "/api/v1/intents/"+id, ""); !strings.Contains(a.body, want) || want != `"text":"me@local"` && strings.Contains(a.body, `"answer"`) {
			t.Errorf("the answer is %d %s, want %s", a.status, a.body, want)
		}
	}
	const own, changed, hidden = `"text":"me@local"`, "the row of this intent in the store was changed", "not_found"
	id, _ := r.ask(mine, "POST", "/api/v1/intents", `{"agent":"worker","text":"hello"}`).doc["intent_id"].(string)
	sees(mine, id, own)
	sees(other, id, hidden)
	sees(narrow, id, hidden)
	change(`principal = 'you@local'`)
	sees(other, id, changed)
	change(`principal = 'me@local', name = 'a'`)
	sees(narrow, id, changed)
	change(`name = 'worker'`)
	sees(mine, id, own)

	// While the program runs, the row of its intent is changed.
	for _, set := range []string{`principal = 'you@local'`, `principal = 'you@local', sealed = X'00'`} {
		id, _ = r.ask(mine, "POST", "/api/v1/intents", `{"agent":"worker","text":"block","wait":false}`).doc["intent_id"].(string)
		<-does.began
		change(set)
		r.ask(other, "POST", "/api/v1/intents/"+id+"/cancel", "")
		for deadline := time.Now().Add(time.Minute); r.ask(other, "GET", "/api/v1/intents/"+id, "").doc["state"] != "cancelled"; {
			if time.Now().After(deadline) {
				t.Fatal("the intent was not cancelled")
			}
		}
		sees(other, id, changed)
	}
}
