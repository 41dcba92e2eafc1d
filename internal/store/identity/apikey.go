package identity

import (
	"cmp"
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

	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/state"
)

// An API key has the form
//
//	ambit_<id>_<secret><checksum>
//
// The id has 10 characters and is not secret. The store looks up keys by id. The secret has 43 characters, which encode
// 256 random bits in base 62. The checksum has 6 characters, which encode the CRC-32 of the preceding characters.
// Secret scanners use the checksum to recognize real keys. The checksum also allows ambit to reject a mistyped key
// without a lookup in the store.
const (
	keyPrefix   = "ambit_"
	idLength    = 10
	idAlphabet  = "abcdefghjkmnpqrstuvwxyz23456789" // an alphabet without characters that look similar
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	secretBytes = 32
	secretWidth = 43
	sumWidth    = 6
	keyLength   = len(keyPrefix) + idLength + 1 + secretWidth + sumWidth
)

// These errors mean that a key was rejected. ErrUnknown gives no details, because it is returned to callers who have no
// valid key.
var (
	ErrUnknown = errors.New("the key is unknown")
	ErrExpired = errors.New("the key has expired")
	ErrRevoked = errors.New("the key has been revoked")
)

// KeySpec describes a new key.
type KeySpec struct {
	// Name is a label for people.
	Name string
	// Principal is the name of the holder in policies and in the journal. If Principal is empty, the name is "key:"
	// followed by the key's id.
	Principal string
	// Agents lists the agents that the holder can use. An empty list means all agents.
	Agents []string
	// Groups lists the holder's groups, which policy rules can name.
	Groups []string
	// Admin allows the holder to administer the daemon.
	Admin bool
	// Expires is the time when the key expires. The zero time means never.
	Expires time.Time
}

// APIKey is a stored key, without its secret.
type APIKey struct {
	ID string
	KeySpec
	Made    time.Time
	Revoked time.Time // the time of the revocation; zero if the key is not revoked
	// Changed is set if the register does not contain the key: something other than ambit wrote the row. Such a key is
	// not valid.
	Changed bool

	hash []byte
}

func (k *APIKey) principal() *Principal {
	return &Principal{
		Name: cmp.Or(k.Principal, KeyPrincipal(k.ID)), Kind: ByKey, KeyID: k.ID, Admin: k.Admin, Groups: k.Groups,
		Agents: k.Agents, Everywhere: len(k.Agents) == 0, Until: k.Expires,
	}
}

// KeyPrincipal returns the principal of an API key whose spec names no principal.
func KeyPrincipal(id string) string { return keyRealm + id }

// APIKeys manages the API keys of a store. Every check reads the store, so all processes reject a revoked key
// immediately.
type APIKeys struct {
	// Note is a callback for every new key and every revocation, or nil. It runs in the transaction that makes the
	// change.
	Note func(state.Tx, KeyChange) error

	register *authority.Register
	now      func() time.Time
}

// KeyChange describes a new key or the revocation of a key.
type KeyChange struct {
	// Made is the new key. Old is the key that the new key replaces, or nil.
	Made, Old *APIKey
	// Revoked is the id of the revoked key. It is empty if the change is a new key.
	Revoked string
}

func (a *APIKeys) note(tx state.Tx, c KeyChange) error {
	if a.Note == nil {
		return nil
	}
	return a.Note(tx, c)
}

// NewAPIKeys returns the API keys of a store. Only keys in the register are valid.
func NewAPIKeys(register *authority.Register) *APIKeys {
	return &APIKeys{register: register, now: time.Now}
}

// New creates a key. The second result is the text that the holder presents. The store keeps only a hash of the text.
func (a *APIKeys) New(ctx context.Context, spec KeySpec) (*APIKey, string, error) {
	switch {
	case spec.Principal != "" && !ValidName(spec.Principal):
		return nil, "", fmt.Errorf("%q is not a valid principal name", spec.Principal)
	case len(spec.Groups) > maxGroups:
		return nil, "", fmt.Errorf("a key can have at most %d groups", maxGroups)
	case spec.Admin && len(spec.Agents) > 0:
		return nil, "", errors.New("an admin key cannot be limited to some agents")
	}
	for _, group := range spec.Groups {
		if !ValidGroup(group) {
			return nil, "", fmt.Errorf("%q is not a valid name for a group", group)
		}
	}
	k := &APIKey{ID: newID(), KeySpec: spec, Made: a.now()}
	text := newText(k.ID)
	hash := sha256.Sum256([]byte(text))
	k.hash = hash[:]
	err := a.register.DB.Write(ctx, func(tx state.Tx) error {
		if err := a.insert(tx, k); err != nil {
			return err
		}
		return a.note(tx, KeyChange{Made: k})
	})
	if err != nil {
		return nil, "", fmt.Errorf("cannot store the key: %w", err)
	}
	return k, text, nil
}

// List returns all keys from oldest to newest, including expired and revoked keys.
func (a *APIKeys) List(ctx context.Context) ([]*APIKey, error) {
	var keys []*APIKey
	err := a.register.Read(ctx, func(tx state.Tx, v *authority.View) error {
		keys = nil
		return tx.Query(allKeys+` ORDER BY made, id`, nil, func(r state.Row) error {
			k, err := scanKey(r)
			if err != nil {
				return err
			}
			k.compare(v)
			keys = append(keys, k)
			return nil
		})
	})
	return keys, err
}

// Revoke makes a key invalid immediately. It returns false if the id is unknown or the key was already revoked.
func (a *APIKeys) Revoke(ctx context.Context, id string) (bool, error) {
	revoked := false
	err := a.register.DB.Write(ctx, func(tx state.Tx) error {
		rows, err := tx.Exec(`UPDATE api_keys SET revoked = $1 WHERE id = $2 AND revoked = 0`, a.now().UnixMicro(), id)
		if err != nil {
			return err
		}
		registered, err := a.register.Remove(tx, authority.APIKey, id)
		if revoked = rows > 0 || registered; err != nil || !revoked {
			return err
		}
		return a.note(tx, KeyChange{Revoked: id})
	})
	return revoked, err
}

// Check returns the principal that holds the key with the given text. It fails with ErrUnknown, ErrExpired,
// ErrRevoked, or an error from the store.
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
	if err := k.valid(a.now()); err != nil {
		return nil, err
	}
	return k.principal(), nil
}

// Standing returns nil if the key with the given id is still valid. Otherwise Standing fails with the same errors as
// Check.
func (a *APIKeys) Standing(ctx context.Context, id string) error {
	k, err := a.find(ctx, id)
	switch {
	case err != nil:
		return err
	case k == nil:
		return ErrUnknown
	}
	return k.valid(a.now())
}

var errTokenExpired = errors.New("the token has expired")

// CredentialExpired checks whether a caller's credential is still valid. If keyID is set, the credential is the API key
// with that id. If keyID is empty, the credential is a token that expires at the given time. The zero time means never.
// If the credential is no longer valid, the first result is the reason. If the check itself fails, the second result is
// the error. If the credential is valid, both results are nil.
func CredentialExpired(ctx context.Context, keys interface {
	Standing(ctx context.Context, id string) error
}, keyID string, expires time.Time,
) (why, err error) {
	if keyID == "" {
		if !expires.IsZero() && !time.Now().Before(expires) {
			why = errTokenExpired
		}
		return why, nil
	}
	err = keys.Standing(ctx, keyID)
	if errors.Is(err, ErrRevoked) || errors.Is(err, ErrExpired) || errors.Is(err, ErrUnknown) {
		return err, nil
	}
	return nil, err
}

// find returns the key with the given id, or nil if the id is unknown.
func (a *APIKeys) find(ctx context.Context, id string) (k *APIKey, err error) {
	err = a.register.DB.Read(ctx, func(tx state.Tx) (err error) {
		k, err = a.findIn(tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the API keys: %w", err)
	}
	return k, nil
}

// findIn reads a key and the head of the register with one query, because every request with a key needs both.
func (a *APIKeys) findIn(tx state.Tx, id string) (k *APIKey, err error) {
	var h authority.Head
	err = tx.Query(`SELECT `+keyColumns+`, h.name, h.version, h.mac FROM api_keys k
LEFT JOIN authority_head h ON h.one = 1 WHERE k.id = $1`, []any{id}, func(r state.Row) (err error) {
		k, err = scanKey(r, &h.Name, &h.Version, &h.MAC)
		return err
	})
	if err != nil || k == nil || k.ID != id {
		return nil, err
	}
	v, err := a.register.ViewAt(tx, h)
	if err != nil {
		return nil, err
	}
	k.compare(v)
	return k, nil
}

func (k *APIKey) valid(now time.Time) error {
	switch {
	case !k.Revoked.IsZero():
		return ErrRevoked
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return ErrExpired
	case k.Changed:
		return ErrUnknown
	}
	return nil
}

// PassingKey is an admin key that exists only in the memory of one process. The key becomes invalid when the process
// exits.
type PassingKey struct {
	hash      []byte
	principal *Principal
}

// NewPassingKey creates a key for the current user. The second result is the text that the holder presents.
func NewPassingKey() (*PassingKey, string) {
	id := newID()
	text := newText(id)
	hash := sha256.Sum256([]byte(text))
	p := &Principal{Name: LocalName(), Kind: Local, KeyID: id, Admin: true, Everywhere: true}
	return &PassingKey{hash: hash[:], principal: p}, text
}

// Check returns the holder of the key, or nil if text is a different key.
func (k *PassingKey) Check(text string) *Principal {
	if k == nil || !sameKey(text, k.hash) {
		return nil
	}
	p := *k.principal
	return &p
}

const (
	keyColumns = `k.id, k.name, k.hash, k.principal, k.agents, k.admin, k.made, k.expires, k.revoked, k.member_of`
	allKeys    = `SELECT ` + keyColumns + ` FROM api_keys k`
)

// scanKey reads a key from a row. The columns after the key are read into the other arguments.
func scanKey(r state.Row, more ...any) (*APIKey, error) {
	var k APIKey
	var agents, groups string
	var admin, made, expires, revoked int64
	into := append([]any{&k.ID, &k.Name, &k.hash, &k.Principal, &agents, &admin, &made, &expires, &revoked, &groups}, more...)
	if err := r.Scan(into...); err != nil {
		return nil, err
	}
	if agents != "" {
		// A damaged list must not be treated as an empty list, because an empty list allows all agents.
		if err := json.Unmarshal([]byte(agents), &k.Agents); err != nil || len(k.Agents) == 0 {
			return nil, fmt.Errorf("the list of agents for the key %s is damaged", k.ID)
		}
	}
	if groups != "" {
		// A damaged list must not be treated as an empty list, because rules may forbid something to a group.
		if err := json.Unmarshal([]byte(groups), &k.Groups); err != nil || len(k.Groups) == 0 {
			return nil, fmt.Errorf("the list of groups of the key %s is damaged", k.ID)
		}
	}
	k.Admin, k.Made = admin != 0, state.Instant(made)
	k.Expires, k.Revoked = state.Instant(expires), state.Instant(revoked)
	return &k, nil
}

// compare compares the key with the register and sets Changed.
func (k *APIKey) compare(v *authority.View) {
	k.Changed = k.Revoked.IsZero() && !v.Has(k.row())
}

// content returns every part of the key that affects the key's authority.
func (k *APIKey) content() []byte {
	agents := append([]string{}, k.Agents...) // nil and an empty list mean the same
	parts := []any{k.hash, k.Name, k.Principal, agents, k.Admin, state.Micros(k.Made), state.Micros(k.Expires)}
	if len(k.Groups) > 0 { // keys of earlier versions have no groups
		parts = append(parts, k.Groups)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // encoding strings, bytes and numbers never fails
	}
	return text
}

func (k *APIKey) row() authority.Row {
	return authority.Row{Kind: authority.APIKey, ID: k.ID, Content: k.content(), Until: k.Expires}
}

// sameKey reports in constant time whether a text has the given hash.
func sameKey(text string, hash []byte) bool {
	got := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(got[:], hash) == 1
}

// LooksLikeKey reports whether text begins like an API key. It does not check whether the key is valid.
func LooksLikeKey(text string) bool { return strings.HasPrefix(text, keyPrefix) }

// idOf returns the id in the text of a key. It returns false if the format or the checksum is wrong.
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
			panic(err) // the system's random source never fails
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

// digits returns n in base 62, padded with zeros to the given width.
func digits(n *big.Int, width int) string {
	n = new(big.Int).Set(n)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	b := make([]byte, width)
	for i := range slices.Backward(b) {
		n.DivMod(n, base, digit)
		b[i] = base62[digit.Int64()]
	}
	return string(b)
}

// ErrNoKey means that the id is unknown, or that the key has expired or was revoked.
var ErrNoKey = errors.New("there is no valid key with this id")

// Rotate replaces a key with a new key for the same principal. The new key has the same rights and the same lifetime as
// the old key. The new lifetime begins now. The old key remains valid for the given overlap, unless it expires earlier.
// The third result is the text of the new key. The store does not keep this text.
func (a *APIKeys) Rotate(
	ctx context.Context, id string, overlap time.Duration,
) (fresh, old *APIKey, text string, err error) {
	next := newID()
	text = newText(next)
	hash := sha256.Sum256([]byte(text))
	err = a.register.DB.Write(ctx, func(tx state.Tx) error {
		fresh, old = nil, nil
		var err error
		if old, err = a.findIn(tx, id); err != nil {
			return err
		}
		now := a.now()
		if old == nil || old.valid(now) != nil {
			return ErrNoKey
		}
		k := *old
		k.ID, k.Made, k.hash = next, now, hash[:]
		// Grants and policies refer to the principal's name. The new key therefore keeps the name, even if the name
		// contains the old key's id.
		k.Principal = old.principal().Name
		if !old.Expires.IsZero() {
			k.Expires = now.Add(old.Expires.Sub(old.Made))
		}
		if end := now.Add(overlap); old.Expires.IsZero() || end.Before(old.Expires) {
			old.Expires = end
		}
		_, err = tx.Exec(`UPDATE api_keys SET expires = $1 WHERE id = $2`, state.Micros(old.Expires), old.ID)
		if err != nil {
			return err
		}
		if err := a.register.Put(tx, old.row()); err != nil {
			return err
		}
		fresh = &k
		if err := a.insert(tx, fresh); err != nil {
			return err
		}
		return a.note(tx, KeyChange{Made: fresh, Old: old})
	})
	if err != nil {
		return nil, nil, "", err
	}
	return fresh, old, text, nil
}

// insert stores a new key and adds it to the register.
func (a *APIKeys) insert(tx state.Tx, k *APIKey) error {
	agents, err := listText(k.Agents)
	if err != nil {
		return err
	}
	groups, err := listText(k.Groups)
	if err != nil {
		return err
	}
	admin := int64(0)
	if k.Admin {
		admin = 1
	}
	_, err = tx.Exec(`INSERT INTO api_keys (id, name, hash, principal, agents, admin, made, expires, revoked, member_of)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9)`,
		k.ID, k.Name, k.hash, k.Principal, agents, admin, state.Micros(k.Made), state.Micros(k.Expires), groups)
	if err != nil {
		return err
	}
	return a.register.Put(tx, k.row())
}

// listText encodes a list for a column of the database. An empty list becomes an empty string.
func listText(list []string) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// Claims returns the keys whose rows say that they are valid. It does not check whether the register contains them.
func Claims(tx state.Tx) (rows []authority.Row, err error) {
	err = tx.Query(allKeys+` WHERE revoked = 0`, nil, func(r state.Row) error {
		k, err := scanKey(r)
		if err == nil && (k.Expires.IsZero() || time.Now().Before(k.Expires)) {
			row := k.row()
			row.Gives = k.describe()
			rows = append(rows, row)
		}
		return err
	})
	return rows, err
}

// describe explains to a person what access the key gives.
func (k *APIKey) describe() string {
	what := "calls all agents"
	switch {
	case k.Admin:
		what = "administers the daemon"
	case len(k.Agents) > 0:
		what = "calls " + strings.Join(k.Agents, ", ")
	}
	if len(k.Groups) > 0 {
		what += " in the groups " + strings.Join(k.Groups, ", ")
	}
	return fmt.Sprintf("%q %s as %s, created %s, %s",
		k.Name, what, k.principal().Name, k.Made.UTC().Format(time.RFC3339), authority.UntilText(k.Expires))
}
