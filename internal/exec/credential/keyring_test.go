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

// locked is a keyring that waits for a person, and then returns the text or an error.
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

// lockedVault is a vault with one secret, whose key is in a locked keyring.
func lockedVault(t *testing.T) (*File, *locked) {
	t.Helper()
	dir := t.TempDir()
	if err := open(dir, nil).Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "keys", "vault")
	key, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(inKeyring+"vault-1\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &locked{unlocked: make(chan struct{}), text: strings.TrimSpace(string(key))}
	v := open(dir, nil)
	v.key.stored = newBoundedKeyring(l)
	return v, l
}

// TestLockedKeyring: all callers share one request to a locked keyring, and none waits
// longer than keyringWait. A secret that cannot be read is an error, not a missing secret.
func TestLockedKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, l := lockedVault(t)
		source := (&Source{Vault: v}).For("a")
		wants := []Wanted{{Ref: "b"}, {Ref: "c"}, {Ref: "d"}}
		begun := time.Now()
		fails := func() {
			if known, err := source.Known(&agent.Agent{}, wants); err == nil || !strings.Contains(err.Error(), "did not answer") || len(known) > 0 {
				t.Errorf("%d secrets are known, %v", len(known), err)
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
			t.Errorf("the keyring was asked %d times and delayed calls for %v", asked, took)
		}
		close(l.unlocked)
		synctest.Wait()
		if known, err := source.Known(&agent.Agent{}, wants); err != nil || len(known) != 1 || known[0].Reveal() != canary {
			t.Errorf("unlocked: %d secrets are known, %v", len(known), err)
		}
	})
}

// TestRefusingKeyring: a keyring that refuses is asked again only after keyringPause.
func TestRefusingKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, l := lockedVault(t)
		l.refuses = errors.New("dismissed")
		close(l.unlocked)
		for round := range int32(2) {
			for range 3 {
				if _, ok, err := v.Get("a", "b"); ok || !errors.Is(err, l.refuses) {
					t.Errorf("%v, %v", ok, err)
				}
			}
			if asked := l.asked.Load(); asked != round+1 {
				t.Errorf("after %d pauses it was asked %d times", round, asked)
			}
			time.Sleep(keyringPause)
		}
		l.refuses = nil
		if _, ok, err := v.Get("a", "b"); !ok || err != nil {
			t.Errorf("unlocked: %v, %v", ok, err)
		}
	})
}

// TestLostAnswer: an unanswered request is made again after keyringLost.
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
			t.Errorf("the keyring was asked %d times", asked)
		}
		close(l.unlocked)
	})
}

// TestFirstSecretDelaysNoReader: while a keyring is slow to store the key of a new
// vault, readers find an empty vault at once.
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
			t.Errorf("%v, %v, after %v", ok, err, time.Since(begun))
		}
		wait.Wait()
		if kept, err := v.Kept(); kept != "file" || err != nil {
			t.Errorf("the key is stored in %q, %v", kept, err)
		}
		close(l.unlocked)
	})
}
