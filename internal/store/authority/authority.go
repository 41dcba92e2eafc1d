// Package authority keeps a register of every row in the store that gives authority.
//
// # Why
//
// A fleet shares a PostgreSQL database. An attacker with the password of the database can change every row: insert an
// API key, approve a call, or restore the row of a revoked key. The attacker does not have the root key. The register
// makes such changes worthless: a row has authority only if the register contains a hash of exactly that row, and only
// a process with the root key can change the register.
//
// # How
//
// An entry has a kind, an id, and a hash of the row's content. One keyed hash, made with the root key, covers all
// entries and a version. So only a process with the root key can add, change, remove or restore an entry. Revoking
// removes the entry. If an attacker restores a revoked row, the register has no entry for it.
//
// A reader checks the keyed hash only when it has changed, and keeps the entries in memory. Every change of an entry
// computes a new keyed hash over all entries. That is cheap enough, because authority changes only when a person acts.
//
// # Older registers
//
// An attacker could restore the whole register together with the rows. A process therefore remembers the highest
// version that it has seen, and a home records the version for its PostgreSQL stores in a file (see [Memory]). An older
// register is refused with [ErrOlder]. A machine that uses the store for the first time has seen no version. It cannot
// detect an old register, because nothing in the store can prove that a register is the newest one. The home also
// remembers the root key, because an attacker with an older root key can make a register with any version.
package authority

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Kind is the kind of a row with authority.
type Kind string

// The kinds.
const (
	APIKey    Kind = "api key"
	Approval  Kind = "approval"
	Grant     Kind = "grant"
	Allowance Kind = "allowance"
	Review    Kind = "review"
	// Lock marks one row that covers all lock files that an agent has used.
	Lock Kind = "lock file"
	// used marks a single-use id that was spent. Such entries have no row in another table.
	used Kind = "used"
)

// Errors that callers distinguish.
var (
	// ErrChanged means that something other than ambit changed the register.
	ErrChanged = errors.New("the register of keys, grants and approvals was changed by something other than ambit, " +
		"or the root key was rotated while this process ran; to find out, run: ambit journal verify")
	// ErrOlder means that the register is older than a register that this machine has seen.
	ErrOlder = errors.New("the register of keys, grants and approvals is older than the one that this machine has seen, " +
		"so the store was restored, or changes were lost; if you restored a backup, run: ambit key adopt")
	// ErrRolledBack means that this machine has seen the store with a newer root key than the one that the store uses
	// now.
	ErrRolledBack = errors.New("this machine has seen the store with a newer root key, so the store was restored to an " +
		"earlier state, and someone with the older root key may have changed it; if you restored a backup, move seen.json out of AMBIT_HOME and try again")
)

// maxEntries is the maximum number of entries. It prevents a changed database from exhausting a process's memory.
const maxEntries = 100_000

// Keys computes keyed hashes with the root key.
type Keys interface {
	MAC(purpose string, data []byte) [sha256.Size]byte
}

// Register is the register of one store.
type Register struct {
	DB   *DB
	keys Keys
	root string // a hash that identifies the root key

	mu   sync.Mutex
	last *View // the last register that was read; it is not checked again until it changes
}

// New returns the register of a store.
func New(db *DB, keys Keys) *Register {
	id := keys.MAC("root key of the register", nil)
	return &Register{DB: db, keys: keys, root: hex.EncodeToString(id[:8])}
}

// Head identifies a state of a register. A query that joins authority_head can read the head together with another row.
type Head struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	MAC     []byte `json:"mac"`
	// Root identifies the root key that made the MAC. It is empty until the register has been checked.
	Root string `json:"root,omitempty"`
}

func (h Head) equal(other Head) bool {
	return h.Name == other.Name && h.Version == other.Version && bytes.Equal(h.MAC, other.MAC)
}

// follows reports whether h is the state in the parameter seen, or can be a later state.
func (h Head) follows(seen Head) bool {
	return seen.Name == "" || h.Name == seen.Name && h.Version > seen.Version || h.equal(seen)
}

type key struct {
	kind Kind
	id   string
}

type entry struct {
	sum   [sha256.Size]byte
	until int64
}

// View is the content of the register in one transaction.
type View struct {
	Head
	entries map[key]entry
}

// Has reports whether the register contains a row with exactly this content.
func (v *View) Has(row Row) bool {
	e, ok := v.entries[key{row.Kind, row.ID}]
	return ok && e.sum == sha256.Sum256(row.Content)
}

// Knows is like [View.Has], but compares only the kind and the id.
func (v *View) Knows(kind Kind, id string) bool {
	_, ok := v.entries[key{kind, id}]
	return ok
}

// Missing returns the rows that are in the register and still valid, but not in claims. Something deleted or changed
// these rows in their tables.
func (v *View) Missing(claims []Row, now time.Time) (missing []Row) {
	has := map[key]bool{}
	for _, row := range claims {
		has[key{row.Kind, row.ID}] = true
	}
	for k, e := range v.entries {
		if !has[k] && k.kind != used && (e.until == 0 || e.until > state.Micros(now)) {
			missing = append(missing, Row{Kind: k.kind, ID: k.id})
		}
	}
	slices.SortFunc(missing, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return missing
}

// Read runs f on one snapshot of the store, with the register of that snapshot.
func (r *Register) Read(ctx context.Context, f func(state.Tx, *View) error) error {
	return r.DB.Read(ctx, func(tx state.Tx) error {
		v, err := r.View(tx)
		if err != nil {
			return err
		}
		return f(tx, v)
	})
}

// View returns the register of a transaction, which must be a transaction of a [DB]. It fails with ErrChanged, ErrOlder
// or a DamagedError if the register cannot be trusted.
func (r *Register) View(tx state.Tx) (*View, error) {
	h, err := readHead(tx)
	if err != nil {
		return nil, err
	}
	return r.ViewAt(tx, h)
}

func readHead(tx state.Tx) (h Head, err error) {
	err = tx.Query(`SELECT name, version, mac FROM authority_head WHERE one = 1`, nil, func(row state.Row) error {
		return row.Scan(&h.Name, &h.Version, &h.MAC)
	})
	return h, err
}

// ViewAt is like View, but for a caller that has read the head in the same transaction.
func (r *Register) ViewAt(tx state.Tx, h Head) (*View, error) {
	t, err := tracked(tx)
	if err != nil {
		return nil, err
	}
	v, err := r.load(tx, h)
	switch {
	case err != nil:
		return nil, err
	case t.damaged != nil:
		return nil, t.damaged
	case !v.follows(t.seen):
		return nil, ErrOlder
	}
	t.last = v.Head
	return v, nil
}

// load reads the register and checks its keyed hash. If the store has no register, the result is an empty register.
func (r *Register) load(tx state.Tx, h Head) (*View, error) {
	if h.MAC == nil {
		return &View{}, nil
	}
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last != nil && last.equal(h) {
		return last, nil
	}
	entries, err := readEntries(tx)
	if err != nil {
		return nil, err
	}
	v := &View{Head: h, entries: entries}
	if len(v.entries) > maxEntries || subtle.ConstantTimeCompare(r.sign(v), v.MAC) == 0 {
		return nil, ErrChanged
	}
	v.Root = r.root
	r.mu.Lock()
	r.last = v
	r.mu.Unlock()
	return v, nil
}

// readEntries reads the entries without checking them.
func readEntries(tx state.Tx) (map[key]entry, error) {
	entries := map[key]entry{}
	err := tx.Query(`SELECT kind, id, sum, until FROM authority LIMIT $1`, []any{int64(maxEntries + 1)},
		func(row state.Row) error {
			var kind, id string
			var sum []byte
			var e entry
			err := row.Scan(&kind, &id, &sum, &e.until)
			copy(e.sum[:], sum)
			entries[key{Kind(kind), id}] = e
			return err
		})
	return entries, err
}

// sign returns the keyed hash of a register.
func (r *Register) sign(v *View) []byte {
	b := appendText(nil, v.Name)
	b = binary.BigEndian.AppendUint64(b, uint64(v.Version))
	for _, k := range slices.SortedFunc(maps.Keys(v.entries), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	}) {
		e := v.entries[k]
		b = append(appendText(appendText(b, string(k.kind)), k.id), e.sum[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(e.until))
	}
	mac := r.keys.MAC("authority", b)
	return mac[:]
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// Row is a row with authority.
type Row struct {
	Kind Kind
	ID   string
	// Content contains every part of the row that affects the row's authority.
	Content []byte
	// Until is when the row's authority ends. The zero time means never.
	Until time.Time
	// Gives explains to a person what the row allows and who made it. It is set only in claims, which are rows as read
	// from their tables.
	Gives string
}

// UntilText formats the end of a row's authority for the field Gives of a [Row].
func UntilText(end time.Time) string {
	if end.IsZero() {
		return "without an expiry date"
	}
	return "until " + end.UTC().Format(time.RFC3339)
}

// ID combines the values that identify a row into one id. Parts is its inverse.
func ID(values ...string) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}

// Parts returns the values from which ID made an id, or nil.
func Parts(id string) (values []string) {
	if json.Unmarshal([]byte(id), &values) != nil {
		return nil
	}
	return values
}

// Put adds rows to the register. A row replaces the row with the same kind and id.
func (r *Register) Put(tx state.Tx, rows ...Row) error {
	_, err := r.change(tx, func(entries map[key]entry) {
		for _, row := range rows {
			entries[key{row.Kind, row.ID}] = row.entry()
		}
	})
	return err
}

func (row Row) entry() entry { return entry{sha256.Sum256(row.Content), state.Micros(row.Until)} }

// Remove removes a row from the register, and reports whether the register contained it. Remove works even if the row
// is missing from its table. Otherwise, an attacker could delete a row before it is revoked, and restore it later.
func (r *Register) Remove(tx state.Tx, kind Kind, id string) (bool, error) {
	n, err := r.RemoveFunc(tx, kind, func(other string) bool { return other == id })
	return n > 0, err
}

// RemoveFunc is like Remove, but removes the rows for which the callback returns true, and returns their number.
func (r *Register) RemoveFunc(tx state.Tx, kind Kind, which func(id string) bool) (n int, err error) {
	return r.change(tx, func(entries map[key]entry) {
		maps.DeleteFunc(entries, func(k key, _ entry) bool { return k.kind == kind && which(k.id) })
	})
}

// change lets the callback f change the entries of the register. It returns the number of entries that f removed.
func (r *Register) change(tx state.Tx, f func(entries map[key]entry)) (fewer int, err error) {
	v, err := r.View(tx)
	if err != nil {
		return 0, err
	}
	next := v.clone()
	f(next.entries)
	return len(v.entries) - len(next.entries), r.write(tx, v, next)
}

// Forget removes the register's entry for each row whose authority ended before the given time. It returns the number
// of removed entries.
func (r *Register) Forget(ctx context.Context, before time.Time) (n int, err error) {
	over := func(_ key, e entry) bool { return e.until != 0 && e.until < state.Micros(before) }
	found := false
	err = r.Read(ctx, func(_ state.Tx, v *View) error {
		found = false
		for k, e := range v.entries {
			found = found || over(k, e)
		}
		return nil
	})
	if err != nil || !found { // return without a write transaction, which would block other writers
		return 0, err
	}
	err = r.DB.Write(ctx, func(tx state.Tx) error {
		n, err = r.change(tx, func(entries map[key]entry) { maps.DeleteFunc(entries, over) })
		return err
	})
	return n, err
}

// UsedKept is how long a used id stays in the register after it expires. If a clock is set back, an expired id can
// become valid again. It must then still be recorded as used.
const UsedKept = 31 * 24 * time.Hour

// Spend marks an id as used and returns true if it was not used before. The parameter expires is when the id stops
// being valid.
func (r *Register) Spend(ctx context.Context, id string, expires time.Time) (first bool, err error) {
	err = r.DB.Write(ctx, func(tx state.Tx) error {
		v, err := r.View(tx)
		row := Row{Kind: used, ID: id, Until: expires.Add(UsedKept)}
		if first = err == nil && !v.Has(row); !first {
			return err
		}
		return r.Put(tx, row)
	})
	return first, err
}

// Spent reports whether an id was used.
func (r *Register) Spent(ctx context.Context, id string) (spent bool, err error) {
	err = r.Read(ctx, func(_ state.Tx, v *View) error {
		spent = v.Has(Row{Kind: used, ID: id})
		return nil
	})
	return spent, err
}

// WithKeys returns the register of the same store with other keys.
func (r *Register) WithKeys(keys Keys) *Register { return New(r.DB, keys) }

// SignAgain signs the stored register with the keys of the parameter next. It does nothing if an interrupted rotation
// has already done so. It fails with ErrRolledBack if this machine has already seen the register with these keys.
func (r *Register) SignAgain(tx state.Tx, next *Register) error {
	t, err := tracked(tx)
	if err != nil {
		return err
	}
	if _, err := next.View(tx); !errors.Is(err, ErrChanged) {
		return err
	}
	v, err := r.View(tx)
	switch {
	case err != nil:
		return err
	case t.seen.Root == next.root:
		return ErrRolledBack
	}
	return next.writeHead(tx, v.clone())
}

// Begin creates the register of a store that was made before registers existed. The callback returns the rows that have
// authority. If the store has a register, Begin does nothing.
func (r *Register) Begin(ctx context.Context, claims func(state.Tx) ([]Row, error)) error {
	begun := false
	err := r.DB.Read(ctx, func(tx state.Tx) (err error) {
		begun, err = r.begun(tx)
		return err
	})
	if err != nil || begun {
		return err
	}
	return r.DB.Write(ctx, func(tx state.Tx) error {
		if begun, err := r.begun(tx); err != nil || begun {
			return err
		}
		rows, err := claims(tx)
		if err != nil {
			return err
		}
		_, err = r.Adopt(tx, rows)
		return err
	})
}

func (r *Register) begun(tx state.Tx) (begun bool, err error) {
	err = tx.Query(`SELECT version FROM authority_head`, nil, func(row state.Row) error {
		begun = true
		return nil
	})
	return begun, err
}

// Adopt writes a register that every machine accepts. It is for a store whose register is missing, was changed, or is
// older than the register that this machine has seen. It is also for a home whose record of seen registers is damaged.
// If the register is intact, Adopt keeps the claims that the register contains. Otherwise it keeps all claims. Ids that
// are recorded as used stay used. Adopt returns the rows that it kept.
func (r *Register) Adopt(tx state.Tx, claims []Row) (kept []Row, err error) {
	t, err := tracked(tx)
	if err != nil {
		return nil, err
	}
	h, err := readHead(tx)
	if err != nil {
		return nil, err
	}
	v, err := r.load(tx, h)
	if err != nil && !errors.Is(err, ErrChanged) {
		return nil, err
	}
	t.adopted = true
	next := &View{Head: t.seen}
	if v != nil && next.Name == "" {
		next.Head = v.Head
	}
	// Keep the ids that are recorded as used, even if the register was changed: a used id gives no authority.
	if next.entries, err = readEntries(tx); err != nil {
		return nil, err
	}
	maps.DeleteFunc(next.entries, func(k key, _ entry) bool { return k.kind != used })
	for _, row := range claims {
		if v == nil || v.MAC == nil || v.Has(row) {
			kept = append(kept, row)
			next.entries[key{row.Kind, row.ID}] = row.entry()
		}
	}
	return kept, r.writeAll(tx, next)
}

// writeAll replaces all entries in the store with the entries of the parameter next.
func (r *Register) writeAll(tx state.Tx, next *View) error {
	if _, err := tx.Exec(`DELETE FROM authority`); err != nil {
		return err
	}
	if err := r.writeEntries(tx, nil, next); err != nil {
		return err
	}
	return r.writeHead(tx, next)
}

func (v *View) clone() *View {
	entries := maps.Clone(v.entries)
	if entries == nil {
		entries = map[key]entry{}
	}
	return &View{Head: v.Head, entries: entries}
}

// write replaces the stored register (v) with a new register (next). It writes only the differences.
func (r *Register) write(tx state.Tx, v, next *View) error {
	switch {
	case maps.Equal(v.entries, next.entries):
		return nil
	case v.MAC == nil: // no register is stored, so replace any entries
		return r.writeAll(tx, next)
	}
	for k := range v.entries {
		if _, ok := next.entries[k]; !ok {
			if _, err := tx.Exec(`DELETE FROM authority WHERE kind = $1 AND id = $2`, string(k.kind), k.id); err != nil {
				return err
			}
		}
	}
	if err := r.writeEntries(tx, v.entries, next); err != nil {
		return err
	}
	return r.writeHead(tx, next)
}

// writeEntries writes the entries of a register, except entries that the store already contains.
func (r *Register) writeEntries(tx state.Tx, has map[key]entry, next *View) error {
	if len(next.entries) > maxEntries {
		return fmt.Errorf("the store can hold at most %d valid keys, grants, approvals and allowances", maxEntries)
	}
	for k, e := range next.entries {
		if has[k] == e {
			continue
		}
		_, err := tx.Exec(`INSERT INTO authority (kind, id, sum, until) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, id) DO UPDATE SET sum = excluded.sum, until = excluded.until`, string(k.kind), k.id, e.sum[:], e.until)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Register) writeHead(tx state.Tx, v *View) error {
	t, err := tracked(tx)
	if err != nil {
		return err
	}
	if v.Name == "" {
		v.Name = rand.Text()
	}
	v.Version++
	v.MAC, v.Root = r.sign(v), r.root
	t.last = v.Head
	_, err = tx.Exec(`INSERT INTO authority_head (one, name, version, mac) VALUES (1, $1, $2, $3)
ON CONFLICT (one) DO UPDATE SET name = excluded.name, version = excluded.version, mac = excluded.mac`,
		v.Name, v.Version, v.MAC)
	return err
}
