package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/internal/store/state"
)

// leaseLock is the advisory lock that a connection holds while it leases a log.
const leaseLock = 0x616d626974_02

// newOwner returns a random key for an advisory lock. The owner's name is the key in hexadecimal.
func newOwner() (owner string, key int64) {
	raw := make([]byte, 8)
	rand.Read(raw) // never fails
	return hex.EncodeToString(raw), int64(binary.BigEndian.Uint64(raw))
}

func ownerKey(owner string) (key int64, ok bool) {
	raw, err := hex.DecodeString(owner)
	if err != nil || len(raw) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), true
}

// establish starts a new owner on this connection: it acquires an advisory lock and leases a log.
func (s *store) establish(ctx context.Context) error {
	owner, key := newOwner()
	if _, err := s.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, key); err != nil {
		return err
	}
	var log int64
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) (err error) {
		log, err = lease(ctx, tx, owner)
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.log = owner, log
	s.used = time.Now()
	return nil
}

// lease assigns a log to the owner. It takes the first log whose owner is dead, or creates a new log.
func lease(ctx context.Context, tx pgx.Tx, owner string) (log int64, err error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(leaseLock)); err != nil {
		return 0, err
	}
	held, err := heldKeys(ctx, tx)
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, `SELECT log, coalesce(owner, '') FROM logs WHERE log > 0 ORDER BY log`)
	if err != nil {
		return 0, err
	}
	var holder string
	last, free := int64(0), int64(0)
	if _, err := pgx.ForEachRow(rows, []any{&log, &holder}, func() error {
		last = log
		if key, ok := ownerKey(holder); free == 0 && (!ok || !held[key]) {
			free = log
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if free != 0 {
		_, err = tx.Exec(ctx, `UPDATE logs SET owner = $2 WHERE log = $1`, free, owner)
		return free, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO logs (log, owner, born) VALUES ($1, $2, $3)`,
		last+1, owner, time.Now().UnixMicro())
	return last + 1, err
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// heldKeys returns the keys of all advisory locks that are held in this database. The server reports each key as two
// 32-bit numbers.
func heldKeys(ctx context.Context, q querier) (map[int64]bool, error) {
	rows, err := q.Query(ctx, `SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		return nil, err
	}
	held := map[int64]bool{}
	var key int64
	_, err = pgx.ForEachRow(rows, []any{&key}, func() error {
		held[key] = true
		return nil
	})
	return held, err
}

func (s *store) Alive(ctx context.Context, owner string) (bool, error) {
	if s.isClosed() {
		return false, state.ErrClosed
	}
	key, ok := ownerKey(owner)
	if !ok {
		return false, nil // the name is not that of an owner of a PostgreSQL store
	}
	held, err := heldKeys(ctx, s.pool)
	if err != nil {
		return false, explain(s.orClosed(err))
	}
	return held[key], nil
}
