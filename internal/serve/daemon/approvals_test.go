package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
)

func TestApprovals(t *testing.T) {
	var kept *store.Store
	r := newRig(t, map[string]string{"a.json": matrix("a")}, func(r *rig, o *Options) {
		kept = r.store
		o.Approvals = ApprovalsOf(kept)
	})
	ask := func(id string, expires time.Duration) {
		t.Helper()
		now := time.Now()
		_, err := approval.Ask(context.Background(), kept, &approval.Question{
			ID: id, Agent: "a", Digest: "sha256:d", Tool: "pay", Principal: "me", Arguments: json.RawMessage(`{"id":"` + id + `"}`), Asked: now, Expires: now.Add(expires),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask("one", time.Hour)
	ask("two", time.Hour)
	ask("old", time.Microsecond)

	var list struct {
		Approvals []approval.Question `json:"approvals"`
	}
	a := r.ask(r.admin, "GET", "/api/v1/approvals", "")
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK || len(list.Approvals) != 2 || string(list.Approvals[0].Arguments) != `{"id":"one"}` {
		t.Fatalf("%d: %s, %v", a.status, a.body, err)
	}
	if a := r.ask(r.key(identity.KeySpec{Name: "plain"}), "POST", "/api/v1/approvals/one", `{"decision":"approve"}`); a.status != http.StatusForbidden {
		t.Errorf("a key that is not an admin key could decide: %d", a.status)
	}
	for _, tt := range []struct {
		id, body string
		status   int
	}{
		{"one", `{"decision":"maybe"}`, http.StatusBadRequest},
		{"one", `{"decision":"approve","more":1}`, http.StatusBadRequest},
		{"none", `{"decision":"approve"}`, http.StatusNotFound},
		{"old", `{"decision":"approve"}`, http.StatusConflict},
		{"one", `{"decision":"approve"}`, http.StatusOK},
		{"one", `{"decision":"deny"}`, http.StatusConflict},
		{"two", `{"decision":"deny","reason":"no"}`, http.StatusOK},
	} {
		if a := r.ask(r.admin, "POST", "/api/v1/approvals/"+tt.id, tt.body); a.status != tt.status {
			t.Errorf("%s of %s: %d, want %d", tt.body, tt.id, a.status, tt.status)
		}
	}
	for id, want := range map[string]approval.State{"one": approval.Approved, "two": approval.Denied, "old": approval.Pending} {
		q, err := approval.Get(t.Context(), kept, id)
		if err != nil || q.State != want {
			t.Errorf("%s is %+v, %v", id, q, err)
		}
	}
}
