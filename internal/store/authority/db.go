package authority

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// DB is a store that remembers the newest register that its transactions have read or written. Later transactions
// reject an older register.
type DB struct {
	state.DB
	// Warn, if not nil, is called when the home cannot remember a register. It must be set before the store is used.
	Warn func(error)

	memory *Memory // nil if the home does not remember registers
	mu     sync.Mutex
	seen   Head // the newest register in a committed state
}

// Track returns a store that remembers registers. If m is not nil, the store also rejects registers that are older than
// those in m.
func Track(db state.DB, m *Memory) *DB { return &DB{DB: db, memory: m} }

// Read is like the method Read of [state.DB].
func (d *DB) Read(ctx context.Context, f func(state.Tx) error) error { return d.run(ctx, d.DB.Read, f) }

// Write is like the method Write of [state.DB].
func (d *DB) Write(ctx context.Context, f func(state.Tx) error) error {
	return d.run(ctx, d.DB.Write, f)
}

func (d *DB) run(
	ctx context.Context, transact func(context.Context, func(state.Tx) error) error, f func(state.Tx) error,
) error {
	seen, damaged := d.newest()
	var last *trackedTx // transact can run f more than once; only the last run counts
	err := transact(ctx, func(tx state.Tx) error {
		last = &trackedTx{Tx: tx, seen: seen, damaged: damaged}
		return f(last)
	})
	if err == nil {
		d.remember(ctx, last)
	}
	return err
}

// trackedTx is a transaction of a DB. It compares the register only with the newest register that was seen before the
// transaction began. A register that was committed later is not in the snapshot of the transaction.
type trackedTx struct {
	state.Tx
	seen    Head
	damaged error // the error if seen may be out of date because the home's file is damaged
	last    Head  // the register that was last read or written in the transaction
	adopted bool  // whether a person has accepted that register
}

// tracked returns the transaction of a DB.
func tracked(tx state.Tx) (*trackedTx, error) {
	t, ok := tx.(*trackedTx)
	if !ok {
		return nil, fmt.Errorf("%w: the register needs a transaction of authority.DB", state.ErrTx)
	}
	return t, nil
}

// newest returns the newest register that this process or another process of the home has seen. If the home's file is
// damaged, it returns the newest register that this process has seen, and a DamagedError.
func (d *DB) newest() (Head, error) {
	kept, err := d.memory.newest()
	d.mu.Lock()
	defer d.mu.Unlock()
	if kept.Version > d.seen.Version {
		d.seen = kept
	}
	return d.seen, err
}

// rememberWithin is the maximum time that a transaction waits for other processes that write the home's file.
const rememberWithin = 5 * time.Second

// remember records the register of a transaction that was committed.
func (d *DB) remember(ctx context.Context, t *trackedTx) {
	d.mu.Lock()
	newer := t.last.Version > d.seen.Version // View has checked that both registers have the same name
	if newer {
		d.seen = t.last
	}
	d.mu.Unlock()
	if !newer {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberWithin)
	defer cancel()
	if err := d.memory.keep(ctx, t.last, t.adopted); err != nil && d.Warn != nil {
		d.Warn(fmt.Errorf("this machine cannot remember the newest register of keys, grants and approvals, so another "+
			"process would accept an older register; make AMBIT_HOME writable: %w", err))
	}
}
