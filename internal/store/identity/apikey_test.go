package identity

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// newAPIKeys returns the API keys of a store with a new root key.
func newAPIKeys(t testing.TB, db state.DB) *APIKeys {
	t.Helper()
	root, err := OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return NewAPIKeys(authority.New(authority.Track(db, nil), root))
}

func makeKey(t *testing.T, keys *APIKeys, spec KeySpec) (*APIKey, string) {
	t.Helper()
	k, text, err := keys.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return k, text
}

func TestKeyText(t *testing.T) {
	keys := newAPIKeys(t, statetest.Open(t))
	k, text := makeKey(t, keys, KeySpec{})
	if !regexp.MustCompile(`^ambit_[a-z2-9]{10}_[0-9A-Za-z]{49}$`).MatchString(text) {
		t.Fatal("the key does not have the format that secret scanners look for")
	}
	if id, ok := idOf(text); !ok || id != k.ID {
		t.Errorf("the key contains the id %q, %v; want %q", id, ok, k.ID)
	}
	if _, other := makeKey(t, keys, KeySpec{}); other == text {
		t.Error("two keys are the same")
	}
	// The checksum detects one wrong character at any position, without a lookup in the store.
	for i := len(keyPrefix); i < len(text); i++ {
		wrong := text[:i] + string(base62[(strings.IndexByte(base62, text[i])+1)%len(base62)]) + text[i+1:]
		if _, ok := idOf(wrong); ok {
			t.Errorf("a key with a wrong character at position %d was accepted", i)
		}
	}
}

// The store contains no part of a key's secret.
func TestOnlyTheHashIsKept(t *testing.T) {
	db := statetest.Open(t)
	_, text := makeKey(t, newAPIKeys(t, db), KeySpec{Name: "ci"})
	secret := text[len(keyPrefix)+idLength+1:]
	err := db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT id || name || principal || agents, hash FROM api_keys`, nil, func(r state.Row) error {
			var all string
			var hash []byte
			if err := r.Scan(&all, &hash); err != nil {
				return err
			}
			if strings.Contains(all, secret) || strings.Contains(string(hash), secret) || len(hash) != 32 {
				t.Error("the store contains more of the key than its SHA-256")
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	db := statetest.Open(t)
	keys := newAPIKeys(t, db)
	now := time.Now()
	keys.now = func() time.Time { return now }
	_, plain := makeKey(t, keys, KeySpec{Name: "plain"})
	_, scoped := makeKey(t, keys, KeySpec{Agents: []string{"a", "b"}, Principal: "ci@example.com"})
	_, admin := makeKey(t, keys, KeySpec{Admin: true})
	_, short := makeKey(t, keys, KeySpec{Expires: now.Add(time.Hour)})
	gone, revoked := makeKey(t, keys, KeySpec{})
	if ok, err := keys.Revoke(t.Context(), gone.ID); !ok || err != nil {
		t.Fatal(ok, err)
	}
	// The forged key has the right format and the id of an existing key, but another secret.
	forged := newText(gone.ID)
	for _, tt := range []struct {
		name, text string
		at         time.Duration
		want       error
	}{
		{"plain", plain, 0, nil},
		{"scoped", scoped, 0, nil},
		{"admin", admin, 0, nil},
		{"not yet expired", short, time.Hour - time.Millisecond, nil},
		{"expired", short, time.Hour, ErrExpired},
		{"revoked", revoked, 0, ErrRevoked},
		{"another secret", forged, 0, ErrUnknown},
		{"unknown id", newText("aaaaaaaaaa"), 0, ErrUnknown},
		{"empty", "", 0, ErrUnknown},
		{"only the prefix", keyPrefix, 0, ErrUnknown},
		{"one more character", plain + "0", 0, ErrUnknown},
		{"one less", plain[:len(plain)-1], 0, ErrUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now = now.Add(tt.at)
			defer func() { now = now.Add(-tt.at) }()
			p, err := keys.Check(t.Context(), tt.text)
			if !errors.Is(err, tt.want) || (err == nil) == (p == nil) {
				t.Errorf("got %v, %v; want error %v", p, err, tt.want)
			}
		})
	}
	p, err := keys.Check(t.Context(), scoped)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "ci@example.com" || !p.MayUse("a") || p.MayUse("c") || p.SeesAll() || p.Admin {
		t.Errorf("the principal of a scoped key is %+v, want ci@example.com with access to a, but not to c", p)
	}
	if p, err = keys.Check(t.Context(), plain); err != nil || !strings.HasPrefix(p.Name, "key:") || !p.MayUse("anything") || p.Admin {
		t.Errorf("the principal of a key for all agents is %+v (error %v), want one that can use every agent", p, err)
	}
	if p, err = keys.Check(t.Context(), admin); err != nil || !p.Admin || !p.SeesAll() {
		t.Errorf("the principal of an admin key is %+v (error %v), want an admin", p, err)
	}
}

// After another process revokes a key, the next check refuses the key.
func TestRevokedAtOnce(t *testing.T) {
	db := statetest.Open(t)
	here := newAPIKeys(t, db)
	elsewhere := NewAPIKeys(here.register)
	k, text := makeKey(t, here, KeySpec{})
	if _, err := here.Check(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if ok, err := elsewhere.Revoke(t.Context(), k.ID); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := here.Check(t.Context(), text); !errors.Is(err, ErrRevoked) {
		t.Errorf("checking a revoked key: got error %v, want ErrRevoked", err)
	}
	if again, err := elsewhere.Revoke(t.Context(), k.ID); again || err != nil {
		t.Errorf("revoking a revoked key: got %v, %v; want false", again, err)
	}
	if none, err := elsewhere.Revoke(t.Context(), "nosuchkey1"); none || err != nil {
		t.Errorf("revoking an unknown key: got %v, %v; want false", none, err)
	}
}

func TestListKeys(t *testing.T) {
	keys := newAPIKeys(t, statetest.Open(t))
	now := time.UnixMicro(1_700_000_000_000_000)
	keys.now = func() time.Time { now = now.Add(time.Second); return now }
	a, _ := makeKey(t, keys, KeySpec{Name: "first", Agents: []string{"x"}, Expires: now.Add(time.Hour)})
	b, _ := makeKey(t, keys, KeySpec{Name: "second", Admin: true})
	if _, err := keys.Revoke(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	list, err := keys.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if got := list[0]; got.ID != a.ID || got.Name != "first" || len(got.Agents) != 1 || got.Revoked.IsZero() || !got.Expires.Equal(a.Expires) || !got.Made.Equal(a.Made) {
		t.Errorf("the first key is %+v, want the revoked key", got)
	}
	if got := list[1]; got.ID != b.ID || !got.Admin || !got.Revoked.IsZero() || !got.Expires.IsZero() {
		t.Errorf("the second key is %+v, want the admin key", got)
	}
}

// A key whose list of agents is damaged gives no access.
func TestBrokenScope(t *testing.T) {
	for _, agents := range []string{"x", "[]", "null", "{}"} {
		db := statetest.Open(t)
		keys := newAPIKeys(t, db)
		_, text := makeKey(t, keys, KeySpec{Agents: []string{"a"}})
		err := db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE api_keys SET agents = $1`, agents)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := keys.Check(t.Context(), text); err == nil {
			t.Errorf("a key with the damaged list %q was accepted for %+v", agents, p)
		}
	}
}

// A key has exactly the groups that its maker set. A key whose groups were changed in the store is invalid.
func TestKeyGroups(t *testing.T) {
	db := statetest.Open(t)
	keys := newAPIKeys(t, db)
	plain, plainText := makeKey(t, keys, KeySpec{})
	in, text := makeKey(t, keys, KeySpec{Groups: []string{"finance", "staff"}})
	if p, err := keys.Check(t.Context(), plainText); err != nil || p.Groups != nil {
		t.Errorf("the principal of a key without groups is %+v (error %v), want no groups", p, err)
	}
	_, _, next, err := keys.Rotate(t.Context(), in.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a key with groups": text, "the rotated key": next} {
		if p, err := keys.Check(t.Context(), text); err != nil || !slices.Equal(p.Groups, []string{"finance", "staff"}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for _, groups := range []string{`["finance"]`, "x", "[]", "{}"} {
		err := db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE api_keys SET member_of = $1 WHERE id = $2`, groups, plain.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := keys.Check(t.Context(), plainText); err == nil {
			t.Errorf("a key whose groups were changed to %s in the store is still valid for %+v", groups, p)
		}
	}
}

func TestNewKeyRefusals(t *testing.T) {
	keys := newAPIKeys(t, statetest.Open(t))
	for name, spec := range map[string]KeySpec{
		"admin and scoped":            {Admin: true, Agents: []string{"a"}},
		"group with a line break":     {Groups: []string{"a\nb"}},
		"too many groups":             {Groups: slices.Repeat([]string{"a"}, maxGroups+1)},
		"principal with a line break": {Principal: "a\nb"},
		"hidden text":                 {Principal: "a\u202Eb"},
		"a filler":                    {Principal: "a\u3164b"},
		"too long":                    {Principal: strings.Repeat("a", 300)},
	} {
		if _, _, err := keys.New(t.Context(), spec); err == nil {
			t.Errorf("%s: New created a key", name)
		}
	}
}

func TestPassingKey(t *testing.T) {
	k, text := NewPassingKey()
	p := k.Check(text)
	if p == nil || !p.Admin || p.Kind != Local || p.Name != LocalName() {
		t.Fatalf("the key belongs to %+v, want the local user with admin rights", p)
	}
	_, other := NewPassingKey()
	if k.Check(other) != nil || k.Check("") != nil || (*PassingKey)(nil).Check(text) != nil {
		t.Error("Check accepted another string as the key")
	}
	if !strings.HasSuffix(LocalName(), "@local") || LocalName() == "@local" {
		t.Errorf("LocalName() = %q", LocalName())
	}
}

func BenchmarkCheck(b *testing.B) {
	keys := newAPIKeys(b, statetest.Open(b))
	_, text, err := keys.New(b.Context(), KeySpec{Name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Check(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
}

// An attacker who writes to the store cannot make a key, widen a key, or restore a revoked key, even if the row was
// deleted when the key was revoked.
func TestKeysOfOthers(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		keys := newAPIKeys(t, db)
		exec := func(statement string, args ...any) {
			t.Helper()
			err := db.Write(t.Context(), func(tx state.Tx) error { _, err := tx.Exec(statement, args...); return err })
			if err != nil {
				t.Fatal(err)
			}
		}
		unknown := func(what, text string) {
			t.Helper()
			if p, err := keys.Check(t.Context(), text); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: Check returned %+v, %v; want ErrUnknown", what, p, err)
			}
		}
		forged := newText("forgedforg")
		hash := sha256.Sum256([]byte(forged))
		exec(`INSERT INTO api_keys (id, name, hash, principal, agents, admin, made, expires, revoked)
VALUES ('forgedforg', '', $1, '', '', 1, 0, 0, 0)`, hash[:])
		unknown("an inserted key", forged)
		if _, _, _, err := keys.Rotate(t.Context(), "forgedforg", 0); !errors.Is(err, ErrNoKey) {
			t.Errorf("rotating an inserted key returned %v, want ErrNoKey", err)
		}
		for column, value := range map[string]string{
			"admin": "1", "agents": "''", "principal": "'owner'", "expires": "0", "name": "'x'", "made": "1",
			"hash": "(SELECT hash FROM api_keys WHERE id = 'forgedforg')",
		} {
			_, text := makeKey(t, keys, KeySpec{Agents: []string{"a"}, Principal: "ci", Expires: time.Now().Add(time.Hour)})
			id, _ := idOf(text)
			exec(`UPDATE api_keys SET `+column+` = `+value+` WHERE id = $1`, id)
			unknown("a key with another "+column, text)
			if err := keys.Standing(t.Context(), id); !errors.Is(err, ErrUnknown) {
				t.Errorf("a key with another %s: Standing returned %v, want ErrUnknown", column, err)
			}
		}
		first, one := makeKey(t, keys, KeySpec{})
		second, two := makeKey(t, keys, KeySpec{})
		restore := statetest.Keep(t, db, "api_keys")
		revoke := func(id string) {
			t.Helper()
			if ok, err := keys.Revoke(t.Context(), id); err != nil || !ok {
				t.Fatalf("Revoke returned %v, %v", ok, err)
			}
		}
		revoke(first.ID)
		exec(`DELETE FROM api_keys`)
		revoke(second.ID)
		restore()
		unknown("a restored key", one)
		unknown("a restored key that was deleted first", two)
	})
}
