package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
)

// The text of a key is
//
//	ambit_<id>_<secret><checksum>
//
// with an id of 10 characters, 256 bits of secret in base 62 (43 characters)
// and a CRC-32 of all that goes before it (6 characters). The id finds the key
// in the store and may be shown. The checksum lets a scanner of secrets tell a
// key from a text that only looks like one, and a typo be refused without a
// look into the store.
const (
	keyPrefix   = "ambit_"
	idLength    = 10
	idAlphabet  = "abcdefghjkmnpqrstuvwxyz23456789" // none is mistaken for another
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	secretBytes = 32
	secretWidth = 43
	sumWidth    = 6
	keyLength   = len(keyPrefix) + idLength + 1 + secretWidth + sumWidth
)

// Why a key or token is not taken. The first says nothing of what is wrong: it
// is told to whoever holds no key of ours.
var (
	ErrUnknown = errors.New("the key is not known here")
	ErrExpired = errors.New("the key has expired")
	ErrRevoked = errors.New("the key has been revoked")
)

// KeySpec says what a new key is for.
type KeySpec struct {
	// Name is a word for people.
	Name string
	// Principal is who its holder acts as; empty means the key itself.
	Principal string
	// Agents are the only ones it may use; none means all.
	Agents []string
	// Admin lets it run the daemon too.
	Admin bool
	// Expires is when it ends; zero is never.
	Expires time.Time
}

// APIKey is a key as it is kept: without its secret.
type APIKey struct {
	ID string
	KeySpec
	Made time.Time
	// Revoked is when it was, zero if it was not.
	Revoked time.Time

	hash []byte
}

// principal is who holds the key.
func (k *APIKey) principal() *Principal {
	p := &Principal{Name: k.Principal, Kind: ByKey, KeyID: k.ID, Admin: k.Admin, Agents: k.Agents, Everywhere: len(k.Agents) == 0, Until: k.Expires}
	if p.Name == "" {
		p.Name = keyRealm + k.ID
	}
	return p
}

// APIKeys are the keys of a store. Every check reads the store, so that a key
// that is revoked anywhere is refused everywhere from then on.
type APIKeys struct {
	// Note, if set, writes down what becomes of keys, in the transaction that does it.
	Note func(state.Tx, KeyChange) error

	db  state.DB
	now func() time.Time
}

// KeyChange is what became of keys: Made is new, in the place of Old if that is there
// too. Revoked is the id of one that was ended.
type KeyChange struct {
	Made, Old *APIKey
	Revoked   string
}

func (a *APIKeys) note(tx state.Tx, c KeyChange) error {
	if a.Note == nil {
		return nil
	}
	return a.Note(tx, c)
}

// NewAPIKeys are the keys in a store.
func NewAPIKeys(db state.DB) *APIKeys { return &APIKeys{db: db, now: time.Now} }

// New makes a key. Its text is returned here and never again.
func (a *APIKeys) New(ctx context.Context, spec KeySpec) (*APIKey, string, error) {
	switch {
	case spec.Principal != "" && !ValidName(spec.Principal):
		return nil, "", fmt.Errorf("%q cannot be the name of a principal", spec.Principal)
	case spec.Admin && len(spec.Agents) > 0:
		return nil, "", errors.New("an admin key cannot be limited to agents")
	}
	k := &APIKey{ID: newID(), KeySpec: spec, Made: a.now()}
	text := newText(k.ID)
	hash := sha256.Sum256([]byte(text))
	k.hash = hash[:]
	err := a.db.Write(ctx, func(tx state.Tx) error {
		if err := insertKey(tx, k); err != nil {
			return err
		}
		return a.note(tx, KeyChange{Made: k})
	})
	if err != nil {
		return nil, "", fmt.Errorf("the key could not be kept: %w", err)
	}
	return k, text, nil
}

// List is every key, the newest last, also those that have ended.
func (a *APIKeys) List(ctx context.Context) ([]*APIKey, error) {
	var keys []*APIKey
	err := a.db.Read(ctx, func(tx state.Tx) error {
		keys = nil
		return tx.Query(keyColumns+` ORDER BY made, id`, nil, func(r state.Row) error {
			k, err := scanKey(r)
			keys = append(keys, k)
			return err
		})
	})
	return keys, err
}

// Revoke ends a key at once. It reports false if there is no such key, or if it
// was revoked before.
func (a *APIKeys) Revoke(ctx context.Context, id string) (bool, error) {
	var rows int64
	err := a.db.Write(ctx, func(tx state.Tx) (err error) {
		rows, err = tx.Exec(`UPDATE api_keys SET revoked = $1 WHERE id = $2 AND revoked = 0`, a.now().UnixMicro(), id)
		if err != nil || rows == 0 {
			return err
		}
		return a.note(tx, KeyChange{Revoked: id})
	})
	return rows > 0, err
}

// Check tells who holds a key, or why it is not taken: ErrUnknown, ErrExpired,
// ErrRevoked, or an error of the store.
func (a *APIKeys) Check(ctx context.Context, text string) (*Principal, error) {
	id, ok := idOf(text)
	if !ok {
		return nil, ErrUnknown
	}
	k, err := a.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case k == nil || !sameKey(text, k.hash):
		return nil, ErrUnknown
	}
	if err := k.good(a.now()); err != nil {
		return nil, err
	}
	return k.principal(), nil
}

// Standing tells whether a key that was checked before is still good, by its id.
// It fails as Check does.
func (a *APIKeys) Standing(ctx context.Context, id string) error {
	k, err := a.find(ctx, id)
	switch {
	case err != nil:
		return err
	case k == nil:
		return ErrUnknown
	}
	return k.good(a.now())
}

var errTokenOver = errors.New("the token has expired")

// Over says why what somebody came by is not good any more: a key, by its id, or,
// where there is none, what ends at a time. The error is why that cannot be told.
func Over(ctx context.Context, keys interface {
	Standing(ctx context.Context, id string) error
}, key string, until time.Time,
) (why, err error) {
	if key == "" {
		if !until.IsZero() && !time.Now().Before(until) {
			why = errTokenOver
		}
		return why, nil
	}
	err = keys.Standing(ctx, key)
	if errors.Is(err, ErrRevoked) || errors.Is(err, ErrExpired) || errors.Is(err, ErrUnknown) {
		return err, nil
	}
	return nil, err
}

// find is the key of an id, nil if there is none.
func (a *APIKeys) find(ctx context.Context, id string) (k *APIKey, err error) {
	err = a.db.Read(ctx, func(tx state.Tx) error {
		k = nil
		return tx.Query(keyColumns+` WHERE id = $1`, []any{id}, func(r state.Row) (err error) {
			k, err = scanKey(r)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("the keys cannot be read: %w", err)
	}
	return k, nil
}

// good says why a key is not taken, if it is not.
func (k *APIKey) good(now time.Time) error {
	switch {
	case !k.Revoked.IsZero():
		return ErrRevoked
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return ErrExpired
	}
	return nil
}

// PassingKey is an admin key of one process, kept nowhere but in its memory: it
// ends with the process, however that ends.
type PassingKey struct {
	id        string
	hash      []byte
	principal *Principal
}

// NewPassingKey makes one for the person whose process this is.
func NewPassingKey() (*PassingKey, string) {
	id := newID()
	text := newText(id)
	hash := sha256.Sum256([]byte(text))
	return &PassingKey{id: id, hash: hash[:], principal: &Principal{Name: LocalName(), Kind: Local, KeyID: id, Admin: true, Everywhere: true}}, text
}

// Check tells who holds the key, or nil if it is another.
func (k *PassingKey) Check(text string) *Principal {
	if k == nil || !sameKey(text, k.hash) {
		return nil
	}
	p := *k.principal
	return &p
}

const keyColumns = `SELECT id, name, hash, principal, agents, admin, made, expires, revoked FROM api_keys`

func scanKey(r state.Row) (*APIKey, error) {
	var k APIKey
	var agents string
	var admin, made, expires, revoked int64
	if err := r.Scan(&k.ID, &k.Name, &k.hash, &k.Principal, &agents, &admin, &made, &expires, &revoked); err != nil {
		return nil, err
	}
	if agents != "" {
		// A list that cannot be read must not turn into all agents.
		if err := json.Unmarshal([]byte(agents), &k.Agents); err != nil || len(k.Agents) == 0 {
			return nil, fmt.Errorf("the agents of the key %s cannot be read", k.ID)
		}
	}
	k.Admin, k.Made, k.Expires, k.Revoked = admin != 0, state.Instant(made), state.Instant(expires), state.Instant(revoked)
	return &k, nil
}

// sameKey compares in a time that tells nothing of where they differ.
func sameKey(text string, hash []byte) bool {
	got := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(got[:], hash) == 1
}

// LooksLikeKey reports whether a text has the form of an API key, right or
// wrong.
func LooksLikeKey(text string) bool { return strings.HasPrefix(text, keyPrefix) }

// idOf takes the id out of a key whose checksum is right.
func idOf(text string) (string, bool) {
	if len(text) != keyLength || !LooksLikeKey(text) {
		return "", false
	}
	body := text[:keyLength-sumWidth]
	if body[len(keyPrefix)+idLength] != '_' || checksum(body) != text[keyLength-sumWidth:] {
		return "", false
	}
	return body[len(keyPrefix) : len(keyPrefix)+idLength], true
}

func newID() string {
	b := make([]byte, idLength)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(idAlphabet))))
		if err != nil {
			panic(err) // the system's source of randomness never fails
		}
		b[i] = idAlphabet[n.Int64()]
	}
	return string(b)
}

func newText(id string) string {
	var secret [secretBytes]byte
	rand.Read(secret[:]) // never fails
	body := keyPrefix + id + "_" + digits(new(big.Int).SetBytes(secret[:]), secretWidth)
	return body + checksum(body)
}

func checksum(body string) string {
	return digits(big.NewInt(int64(crc32.ChecksumIEEE([]byte(body)))), sumWidth)
}

// digits writes a number in base 62, padded to a width.
func digits(n *big.Int, width int) string {
	n = new(big.Int).Set(n)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	var b []byte
	for n.Sign() > 0 {
		n.DivMod(n, base, digit)
		b = append(b, base62[digit.Int64()])
	}
	for len(b) < width {
		b = append(b, base62[0])
	}
	slices.Reverse(b)
	return string(b)
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
