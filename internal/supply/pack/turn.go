package pack

import (
	"context"
	"sync"
)

// turns ensures that this process never fetches the same package twice at the same time, because all servers of all
// agents can start together.
var turns = struct {
	sync.Mutex
	byKey map[string]*turn
}{byKey: map[string]*turn{}}

type turn struct {
	users int           // the number of goroutines that have the turn or wait for it
	token chan struct{} // contains a value while a goroutine has the turn
}

// takeTurn waits until no other goroutine has the turn for this key. The caller must call done afterwards. If ctx ends
// first, takeTurn returns its error.
func takeTurn(ctx context.Context, key string) (done func(), err error) {
	turns.Lock()
	t := turns.byKey[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		turns.byKey[key] = t
	}
	t.users++
	turns.Unlock()
	leave := func() {
		turns.Lock()
		defer turns.Unlock()
		if t.users--; t.users == 0 {
			delete(turns.byKey, key)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
