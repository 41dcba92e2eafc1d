package credential

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"filippo.io/age"
	oskeyring "github.com/zalando/go-keyring"

	"github.com/ambit-run/ambit/internal/store/home"
)

// keyring stores short texts for the logged-in user.
type keyring interface {
	get(account string) (string, error)
	set(account, text string) error
}

// keyFile contains the key of a vault, or names the keyring account that does.
type keyFile struct {
	path string
	// prefer stores new keys; nil stores them in the file. stored holds existing
	// keys.
	prefer, stored keyring
}

// inKeyring is the prefix of a key file that names an account in the keyring.
const inKeyring = "keyring "

// Kept returns where the vault's key is stored: "keyring" or "file". It is empty
// if the vault has no key yet.
func (f *File) Kept() (string, error) {
	text, err := f.key.text()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case strings.HasPrefix(text, inKeyring):
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
		return "", fmt.Errorf("other users can read or change the vault's key: "+
			"run chmod 600 %s, and replace the secrets if another user may have read them", k.path)
	}
	text, err := os.ReadFile(k.path)
	return strings.TrimSpace(string(text)), err
}

func (k keyFile) read() (*age.X25519Identity, error) {
	text, err := k.text()
	if err != nil {
		return nil, err
	}
	if account, ok := strings.CutPrefix(text, inKeyring); ok {
		if text, err = k.stored.get(account); err != nil {
			return nil, fmt.Errorf("the vault's key cannot be read from the keyring: %w", err)
		}
	}
	ident, err := age.ParseX25519Identity(text)
	if err != nil {
		// The library's error may quote the key.
		return nil, fmt.Errorf("%s does not contain a vault key", k.path)
	}
	return ident, nil
}

// create makes and stores a new key. The caller holds the vault's lock.
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
		var id [16]byte
		rand.Read(id[:]) // never fails
		account := "vault-" + hex.EncodeToString(id[:])
		// Some keyrings accept a value and do not return it, so read it back.
		if err := k.prefer.set(account, text); err == nil {
			if back, err := k.prefer.get(account); err == nil && back == text {
				text = inKeyring + account
			}
		}
	}
	return ident, home.Replace(k.path, 0o600, []byte(text+"\n"))
}

// sessionKeyring returns the keyring of this session. It is nil if there is none,
// or if AMBIT_HOME moves all of ambit's files.
func sessionKeyring() keyring {
	if os.Getenv("AMBIT_HOME") != "" {
		return nil
	}
	// On Linux, connecting to a missing session bus would start one.
	if runtime.GOOS == "linux" && os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), "bus")); err != nil {
			return nil
		}
	}
	return newBoundedKeyring(osKeyring{})
}

// osKeyring is the operating system's keyring. It may wait for a person forever,
// so callers use it through a boundedKeyring.
type osKeyring struct{}

const service = "ambit"

func (osKeyring) get(account string) (string, error) { return oskeyring.Get(service, account) }

func (osKeyring) set(account, text string) error { return oskeyring.Set(service, account, text) }
