//go:build unix

package toolserver

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// signIn is a sign-in that a test completes and revokes. Its token is the canary.
type signIn struct{ done, missing atomic.Bool }

func (s *signIn) Header(_ context.Context, h http.Header) (string, error) {
	if !s.done.Load() {
		return "", nil
	}
	h.Set("Authorization", "Bearer "+canary)
	return canary, nil
}

func (s *signIn) Prove(*http.Request) error { return nil }

func (s *signIn) Refused(context.Context, *http.Request, *http.Response, int) (bool, error) {
	s.missing.Store(true)
	return false, call.Refuse(stage, call.CredentialMissing, "the server needs a sign-in")
}

func (s *signIn) Missing() bool {
	if s.done.Load() {
		s.missing.Store(false)
	}
	return s.missing.Load()
}

// A server that needs a sign-in is the only server that is refused. After the sign-in it works without a restart, and
// after a sign-out its next call is refused.
func TestSignIn(t *testing.T) {
	r := newRig(t)
	answer := handler(sdkServer("echo"), true)
	r.at("web", []string{"echo"}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+canary {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer.ServeHTTP(w, req)
	}))
	r.fake("local", []string{"echo"})
	in := &signIn{}
	r.o.SignIn = func(*agent.Server) SignIn { return in }
	m := r.start()
	r.works(m, "local")
	if _, refusal := r.call(m, "web", "echo", "{}"); refusal == nil || refusal.Code != call.CredentialMissing {
		t.Errorf("a call without a sign-in: %v", refusal)
	}
	in.done.Store(true)
	r.until("the server works after the sign-in", func() bool {
		_, refusal := r.call(m, "web", "echo", "{}")
		return refusal == nil
	})
	in.done.Store(false)
	if _, refusal := r.call(m, "web", "echo", "{}"); refusal == nil || refusal.Code != call.CredentialMissing ||
		refusal.Effect != call.NoEffect {
		t.Errorf("after the sign-out, a call ended with %v", refusal)
	}
	r.works(m, "local")
	if all := r.reported(m); strings.Contains(all, canary) {
		t.Errorf("the token was leaked:\n%s", all)
	}
}

// A server whose manifest declares an authorization header gets no token of a sign-in.
func TestDeclaredAuthorization(t *testing.T) {
	r := newRig(t)
	web := r.at("web", []string{"echo"}, handler(sdkServer("echo"), true),
		agent.Setting{Name: "authorization", Value: "Bearer of-the-manifest"})
	in := &signIn{}
	in.done.Store(true)
	r.o.SignIn = func(*agent.Server) SignIn { return in }
	r.works(r.proven(), "web")
	if got := web.header.Load().Get("Authorization"); got != "Bearer of-the-manifest" {
		t.Errorf("the server got the Authorization header %q", got)
	}
}
