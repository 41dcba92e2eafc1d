package toolserver

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/internal/supply/pack"
)

// turn is a server's place in the row in which packages are hashed.
type turn struct {
	before <-chan struct{} // closed when the one before has been hashed; nil for the first
	passed chan struct{}
	once   sync.Once
}

// lineUp lets the packages of servers be hashed one after the other, the
// largest first. Hashing one takes every core there is, so that several at the
// same time only hold each other up; and whoever has the largest package is as a
// rule the slowest to start, so that the others are hashed and started while it
// does.
func lineUp(servers []*server, size func(*server) int64) {
	sizes := make(map[*server]int64, len(servers))
	for _, s := range servers {
		sizes[s] = size(s)
	}
	row := slices.Clone(servers)
	slices.SortStableFunc(row, func(a, b *server) int { return cmp.Compare(sizes[b], sizes[a]) })
	var before <-chan struct{}
	for _, s := range row {
		s.turn = &turn{before: before, passed: make(chan struct{})}
		before = s.turn.passed
	}
}

// wait returns when the server's package may be hashed.
func (t *turn) wait(ctx context.Context) error {
	if t.before == nil {
		return nil
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass lets the next one go on. Whoever has been hashed once has no turn to wait
// for any more, and passing again changes nothing.
func (t *turn) pass() { t.once.Do(func() { close(t.passed) }) }

// packageSize is how much there is to hash of a server's package, 0 for what is
// not in the store.
func (s *server) packageSize() int64 {
	if s.remote() || s.spec.Placeholder || s.spec.Digest == "" {
		return 0
	}
	store := pack.Store{Dir: s.options.Home.Packages()}
	return store.Size(s.want())
}
