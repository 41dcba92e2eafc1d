package credential

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	oskeyring "github.com/zalando/go-keyring"

	"github.com/ambit-run/ambit/internal/store/home"
)

// keyring stores short strings for the user of the session, like the keyring of the operating system.
type keyring interface {
	get(account string) (string, error)
	set(account, text string) error
}

// keyFile stores the key of a vault. The file contains either the key or the name of a keyring account with the key.
type keyFile struct {
	path   string
	prefer keyring // stores new keys; if it is nil, new keys are stored in the file itself
	stored keyring // returns the existing keys that key files refer to
}

// keyringPrefix is the beginning of a key file that contains the name of a keyring account instead of the key.
const keyringPrefix = "keyring "

// Kept returns "keyring" or "file", depending on where the vault's key is stored. It returns "" if the vault has no key
// yet.
func (f *File) Kept() (string, error) {
	text, err := f.key.text()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case strings.HasPrefix(text, keyringPrefix):
		return "keyring", nil
	}
	return "file", nil
}

func (k keyFile) text() (string, error) {
	info, err := os.Lstat(k.path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("the vault's key %s is not a regular file", k.path)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("other users can read or change the vault's key; to prevent that, run: chmod 600 %s; "+
			"if another user may have read the key, replace all secrets", k.path)
	}
	text, err := os.ReadFile(k.path)
	return strings.TrimSpace(string(text)), err
}

func (k keyFile) read() (*age.X25519Identity, error) {
	text, err := k.text()
	if err != nil {
		return nil, err
	}
	if account, ok := strings.CutPrefix(text, keyringPrefix); ok {
		if text, err = k.stored.get(account); err != nil {
			return nil, fmt.Errorf("the vault's key cannot be read from the keyring: %w", err)
		}
	}
	ident, err := age.ParseX25519Identity(text)
	if err != nil {
		// Omit the library's error, because the error may quote the key.
		return nil, fmt.Errorf("%s does not contain a vault key", k.path)
	}
	return ident, nil
}

// create generates and stores a new key. The caller must hold the vault's file lock.
func (k keyFile) create() (*age.X25519Identity, error) {
	ident, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return nil, err
	}
	text := ident.String()
	if k.prefer != nil {
		account := "vault-" + rand.Text()
		// Some keyrings accept a value but do not return it later, so read the value back.
		if err := k.prefer.set(account, text); err == nil {
			if back, err := k.prefer.get(account); err == nil && back == text {
				text = keyringPrefix + account
			}
		}
	}
	return ident, home.Replace(k.path, 0o600, []byte(text+"\n"))
}

// sessionKeyring returns the keyring of this session. sessionKeyring returns nil if the session has none, or if
// AMBIT_HOME is set.
func sessionKeyring() keyring {
	if os.Getenv("AMBIT_HOME") != "" {
		return nil
	}
	// On Linux, connecting to a missing session bus would start a new bus.
	if runtime.GOOS == "linux" && os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), "bus")); err != nil {
			return nil
		}
	}
	return newBoundedKeyring(osKeyring{})
}

// osKeyring is the keyring of the operating system. Callers use a boundedKeyring instead, because osKeyring can wait
// forever for a person to unlock the keyring.
type osKeyring struct{}

const service = "ambit"

func (osKeyring) get(account string) (string, error) { return oskeyring.Get(service, account) }

func (osKeyring) set(account, text string) error { return oskeyring.Set(service, account, text) }

const (
	// keyringWait is the time limit for unlocking the keyring.
	keyringWait = 30 * time.Second
	// keyringPause is the delay before the next request after an error from the keyring.
	keyringPause = 5 * time.Second
	// keyringLost is the age at which an unanswered request is abandoned. The next caller then makes a new request.
	keyringLost = time.Hour
)

// boundedKeyring limits how long callers wait for a keyring.
//
// Every tool call needs the vault's key, because the call's output is scanned for secrets. Concurrent callers share
// one request, and the person sees only one prompt. Callers stop waiting when the request is older than keyringWait.
// From then on, new callers get an error immediately until the keyring answers.
type boundedKeyring struct {
	keyring

	mu       sync.Mutex
	requests map[string]*keyRequest // the latest request for each account
}

type keyRequest struct {
	begun time.Time
	done  chan struct{}
	// The fields below are set before the channel done is closed.
	ended time.Time
	text  string
	err   error
}

func newBoundedKeyring(k keyring) *boundedKeyring {
	return &boundedKeyring{keyring: k, requests: map[string]*keyRequest{}}
}

func (b *boundedKeyring) get(account string) (string, error) {
	b.mu.Lock()
	r := b.requests[account]
	if r == nil || r.stale() {
		r = startRequest(func() (string, error) { return b.keyring.get(account) })
		b.requests[account] = r
	}
	b.mu.Unlock()
	return r.wait()
}

func (b *boundedKeyring) set(account, text string) error {
	_, err := startRequest(func() (string, error) { return "", b.keyring.set(account, text) }).wait()
	return err
}

func startRequest(do func() (string, error)) *keyRequest {
	r := &keyRequest{begun: time.Now(), done: make(chan struct{})}
	go func() {
		r.text, r.err = do()
		r.ended = time.Now()
		close(r.done)
	}()
	return r
}

// stale reports whether the next caller must make a new request.
func (r *keyRequest) stale() bool {
	select {
	case <-r.done:
		return r.err == nil || time.Since(r.ended) >= keyringPause
	default:
		return time.Since(r.begun) >= keyringLost
	}
}

func (r *keyRequest) wait() (string, error) {
	timeout := time.NewTimer(keyringWait - time.Since(r.begun))
	defer timeout.Stop()
	select {
	case <-r.done:
		return r.text, r.err
	case <-timeout.C:
		return "", errors.New("the keyring did not answer; unlock it and try again")
	}
}
