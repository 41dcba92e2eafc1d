package credential

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/agent"
)

// locked is a keyring that waits until it is unlocked, and then returns the text or an error.
type locked struct {
	asked    atomic.Int32
	unlocked chan struct{}
	text     string
	refuses  error
}

func (l *locked) get(string) (string, error) {
	l.asked.Add(1)
	<-l.unlocked
	return l.text, l.refuses
}

func (l *locked) set(string, string) error {
	<-l.unlocked
	return l.refuses
}

// lockedVault returns a vault with one secret. The key of the vault is in a locked keyring.
func lockedVault(t *testing.T) (*File, *locked) {
	t.Helper()
	dir := t.TempDir()
	if err := open(dir, nil).Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "keys", "vault")
	key, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(keyringPrefix+"vault-1\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &locked{unlocked: make(chan struct{}), text: strings.TrimSpace(string(key))}
	v := open(dir, nil)
	v.key.stored = newBoundedKeyring(l)
	return v, l
}

// TestLockedKeyring checks that all callers share one request to a locked keyring. No caller waits
// longer than keyringWait. A secret that cannot be read is an error, not a missing secret.
func TestLockedKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, l := lockedVault(t)
		source := (&Source{Vault: v}).For("a")
		wants := []Reference{{Ref: "b"}, {Ref: "c"}, {Ref: "d"}}
		begun := time.Now()
		fails := func() {
			if known, err := source.Known(&agent.Agent{}, wants); err == nil || !strings.Contains(err.Error(), "did not answer") || len(known) > 0 {
				t.Errorf("%d secrets are known, error %v; want 0 and a timeout", len(known), err)
			}
		}
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(fails)
		}
		wait.Wait()
		for range 4 {
			fails()
		}
		if took, asked := time.Since(begun), l.asked.Load(); took != keyringWait || asked != 1 {
			t.Errorf("the keyring was asked %d times and delayed calls for %v, want once and %v", asked, took, keyringWait)
		}
		close(l.unlocked)
		synctest.Wait()
		if known, err := source.Known(&agent.Agent{}, wants); err != nil || len(known) != 1 || known[0].Reveal() != canary {
			t.Errorf("after the keyring was unlocked, %d secrets are known, error %v; want 1", len(known), err)
		}
	})
}

// TestRefusingKeyring checks that ambit asks a keyring again only keyringPause after an error.
func TestRefusingKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, l := lockedVault(t)
		l.refuses = errors.New("dismissed")
		close(l.unlocked)
		for round := range int32(2) {
			for range 3 {
				if _, ok, err := v.Get("a", "b"); ok || !errors.Is(err, l.refuses) {
					t.Errorf("Get = %v, %v; want the error of the keyring", ok, err)
				}
			}
			if asked := l.asked.Load(); asked != round+1 {
				t.Errorf("after %d pauses the keyring was asked %d times, want %d", round, asked, round+1)
			}
			time.Sleep(keyringPause)
		}
		l.refuses = nil
		if _, ok, err := v.Get("a", "b"); !ok || err != nil {
			t.Errorf("Get after the keyring was unlocked = %v, %v; want the secret", ok, err)
		}
	})
}

// TestLostAnswer checks that ambit makes a new request if the keyring has not answered for keyringLost.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, l := lockedVault(t)
		for range 2 {
			if _, _, err := v.Get("a", "b"); err == nil {
				t.Error("the vault was opened without its key")
			}
			time.Sleep(keyringLost - keyringWait)
		}
		if asked := l.asked.Load(); asked != 2 {
			t.Errorf("the keyring was asked %d times, want 2", asked)
		}
		close(l.unlocked)
	})
}

// TestFirstSecretDelaysNoReader checks that readers do not wait while a slow keyring stores the key
// of a new vault. The readers find an empty vault.
func TestFirstSecretDelaysNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &locked{unlocked: make(chan struct{})}
		v := open(t.TempDir(), newBoundedKeyring(l))
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := v.Set("a", "b", mustNew(t, Masked, canary)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		if _, ok, err := v.Get("a", "b"); ok || err != nil || time.Since(begun) != 0 {
			t.Errorf("Get = %v, %v after %v; want no secret immediately", ok, err, time.Since(begun))
		}
		wait.Wait()
		if kept, err := v.Kept(); kept != "file" || err != nil {
			t.Errorf("the key is stored in %q, %v", kept, err)
		}
		close(l.unlocked)
	})
}
