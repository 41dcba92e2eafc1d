package signin

import (
	"errors"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// The operator adds a grant to config.toml while a daemon runs. Its session for requests without a token obtains no
// token, because the session would never send it.
func TestAnonymousObtainsNoToken(t *testing.T) {
	w, k := newWorld(t), newKeeper(t)
	w.set(func(w *world) {
		w.metadata["token_endpoint_auth_methods_supported"] = []string{methodPost}
		w.metadata["grant_types_supported"] = []string{clientGrant}
	})
	s := k.Anonymous(w.target())
	w.machine(k, Upstream{Grant: clientGrant, ClientID: "machine"}, "canary-secret")
	_, err := request(t.Context(), s, w.endpoint())
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != call.CredentialMissing || len(w.forms) != 0 {
		t.Errorf("got %v after %d token requests, want %s after none", err, len(w.forms), call.CredentialMissing)
	}
}
