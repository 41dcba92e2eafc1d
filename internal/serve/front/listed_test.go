package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// listing serves an agent with n tools under some rules.
func listing(t testing.TB, n int, rules string) *HTTP {
	face, _ := listingOf(t, n, rules)
	return face
}

func listingOf(t testing.TB, n int, rules string) (*HTTP, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.cedar")
	if err := home.Replace(file, 0o600, []byte(rules)); err != nil {
		t.Fatal(err)
	}
	who := &agent.Agent{Name: "a", Dialect: agent.Matrix, Servers: []agent.Server{{Alias: "s"}}}
	for i := range n {
		who.Tools = append(who.Tools, agent.Tool{Name: fmt.Sprint("t", i), Binding: agent.OnServer{Alias: "s"}})
	}
	a := testAgent(t, &stage{})
	a.Gateway = gateway.New(who, gateway.Options{Name: "a", Rules: gate.Rules{Policy: policy.Open(policy.Options{File: file})}})
	a.Definition = func(tool *agent.Tool) []byte {
		return []byte(`{"name":"` + tool.Name + `","description":"It returns what it gets.","inputSchema":{"type":"object"}}`)
	}
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	face := NewHTTP(a, HTTPOptions{Keys: keys})
	t.Cleanup(face.Close)
	return face, file
}

// A connected caller is told when the policy, or a new token in its session, changes its list, and only then.
func TestListChangesWithPolicy(t *testing.T) {
	const forStaff = `forbid (principal, action, resource == Tool::"s/t0") unless { principal in Group::"staff" };`
	face, file := listingOf(t, 2, forStaff)
	face.agent.recheckLists = time.Millisecond
	subscribe := func(p *peer) func() event {
		s := face.agent.addSubscriber(p.caller)
		t.Cleanup(func() { face.agent.removeSubscriber(s) })
		return func() event {
			e, _ := face.agent.next(t.Context(), s)
			return e
		}
	}
	ada, bob := newPeer(face.agent, "1", "ada", nil), newPeer(face.agent, "2", "bob", nil)
	bob.attributes.Store(&identity.Attributes{Groups: []string{"staff"}})
	forAda, forBob := subscribe(ada), subscribe(bob)
	const changed = "notifications/tools/list_changed"
	// The caller renews its token and is now in another group.
	ada.attributes.Store(&identity.Attributes{Groups: []string{"staff"}})
	if e := forAda(); e.method != changed {
		t.Errorf("a new group: %s", e.method)
	}
	// The policy file is replaced by one that hides the tool from everyone.
	if err := home.Replace(file, 0o600, []byte(`forbid (principal, action, resource == Tool::"s/t0");`)); err != nil {
		t.Fatal(err)
	}
	for name, next := range map[string]func() event{"ada": forAda, "bob": forBob} {
		if e := next(); e.method != changed {
			t.Errorf("%s, another policy: %s", name, e.method)
		}
	}
	// The file is replaced by one that has the same effect on the list.
	s := face.agent.addSubscriber(ada.caller)
	defer face.agent.removeSubscriber(s)
	if err := home.Replace(file, 0o600, []byte(`forbid (principal, action, resource in Server::"s") when { resource.name == "t0" };`)); err != nil {
		t.Fatal(err)
	}
	if face.agent.hidesOthers(s) {
		t.Error("the caller was told about a change, but the list is the same")
	}
}

// Twenty callers in different groups get twenty different lists over HTTP, however their requests interleave. A group
// that a client names in its request has no effect.
func TestEachCallerHasItsOwnList(t *testing.T) {
	const callers = 20
	var rules strings.Builder
	for i := range callers {
		fmt.Fprintf(&rules, "forbid (principal, action, resource == Tool::\"s/t%d\") unless { principal in Group::\"g%d\" };\n", i, i)
	}
	face := listing(t, callers+1, rules.String())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This function stands for the daemon's check of a token.
		group := r.URL.Query().Get("caller")
		face.Serve(w, r, "p"+group, &identity.Attributes{Groups: []string{"g" + group}})
	}))
	defer server.Close()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range 10 {
				body := newer("tools/list", `"groups":["g0"],"principal":"p0"`)
				req, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprint(server.URL, "?caller=", i), strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				for _, h := range newerHeaders("tools/list", "") {
					req.Header.Set(h.name, h.value)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				var doc struct {
					Result struct {
						Tools []struct{ Name string } `json:"tools"`
					} `json:"result"`
				}
				err = json.NewDecoder(resp.Body).Decode(&doc)
				resp.Body.Close()
				if got, want := fmt.Sprint(doc.Result.Tools), fmt.Sprintf("[{t%d} {t%d}]", i, callers); err != nil || got != want {
					t.Errorf("the caller %d gets %s, want %s: %v", i, got, want, err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkToolsList compares lists with and without a policy of 200 rules, for 1,000 tools.
func BenchmarkToolsList(b *testing.B) {
	var rules strings.Builder
	for i := range 200 {
		fmt.Fprintf(&rules, "forbid (principal in Group::\"g%d\", action, resource) when "+
			"{ resource.name like \"t%d*\" && context.amr.contains(\"pwd\") };\n", i%20, i)
	}
	for name, text := range map[string]string{"plain": "", "rules": rules.String()} {
		face := listing(b, 1000, text)
		req := &request{principal: "ada", attributes: &identity.Attributes{Groups: []string{"g1", "g2"}, AMR: []string{"pwd"}}}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := face.agent.list(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
