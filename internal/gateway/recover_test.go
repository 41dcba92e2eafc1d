package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/journal"
	"github.com/ambit-run/ambit/internal/state"
	"github.com/ambit-run/ambit/internal/state/statetest"
)

// TestRecover kills the owner of a call under way, and lets another process
// find it.
func TestRecover(t *testing.T) {
	tests := []struct {
		tool, digest string // of the agent that the second process serves
		crashes      int    // of owners, before the one that recovers
		sent         int
		kept         string
	}{
		{"wait_write", "sha256:d1", 1, 1, "call unknown, key claimed, leaf unknown"},
		{"wait_write", "sha256:d2", 1, 1, "call unknown, key claimed, leaf unknown"},
		{"wait_idempotent", "sha256:d1", 1, 2, "key answered, leaf allow"},
		{"wait_idempotent", "sha256:d2", 1, 1, "call sending, key claimed"},
		{"wait_idempotent", "sha256:d1", 2, 2, "call unknown, key claimed, leaf unknown"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.tool, tt.digest, tt.crashes), func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				first := open(t, connect())
				w := newWorld()
				free := sync.OnceFunc(func() { close(w.release) })
				var dead sync.WaitGroup
				dies := New(clerk(), Options{Binding: w, Books: first})
				doors := []*Gateway{dies}
				defer func() {
					free()
					dead.Wait()
					for _, d := range doors {
						d.Close()
					}
				}()
				dead.Go(func() {
					_, _ = dies.Call(context.Background(), &call.Call{Tool: tt.tool, IdempotencyKey: "k", Principal: "me"})
				})
				<-w.began
				next := func(digest string) *Gateway {
					db := connect()
					a := clerk()
					a.Digest = digest
					doors = append(doors, New(a, Options{Binding: w, Books: &books.Books{DB: db, Keys: first.Keys, Journal: journal.New(db, first.Keys.Signer(), "test")}}))
					return doors[len(doors)-1]
				}
				g := next(tt.digest)
				if err := g.Recover(t.Context()); err != nil || w.count() != 1 {
					t.Fatalf("the call of a living process was taken over: sent %d times, %v", w.count(), err)
				}
				if err := first.DB.Close(); err != nil { // the end of its process, as far as others can see
					t.Fatal(err)
				}
				for range tt.crashes - 1 {
					dying := g
					dead.Go(func() { _ = dying.Recover(context.Background()) })
					<-w.began
					g.books.DB.Close()
					g = next(tt.digest)
				}
				recovered := make(chan error)
				go func() { recovered <- g.Recover(context.Background()) }()
				if tt.sent > tt.crashes {
					<-w.began
					free()
				}
				if err := <-recovered; err != nil {
					t.Fatal(err)
				}
				if got := kept(t, g); got != tt.kept {
					t.Errorf("kept: %s\nwant: %s", got, tt.kept)
				}
				if w.count() != tt.sent {
					t.Errorf("sent %d times, want %d", w.count(), tt.sent)
				}
			})
		})
	}
}
