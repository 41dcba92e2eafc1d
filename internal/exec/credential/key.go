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

// keyring keeps short texts for the user who is logged in.
type keyring interface {
	get(account string) (string, error)
	set(account, text string) error
}

// keyFile is where the key of a vault is, or where it says that it is.
type keyFile struct {
	path string
	// prefer takes a new key; nil if it goes into the file. stored is where an
	// older one may be.
	prefer, stored keyring
}

// inKeyring starts a key file that names an account in the keyring.
const inKeyring = "keyring "

// kept says where the key is.
func (k keyFile) kept() (string, error) {
	text, err := k.text()
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
		return "", fmt.Errorf("the key of the vault, %s, is not a plain file", k.path)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("others may read or change the key of the vault: run chmod 600 %s, and replace the secrets if somebody may have seen them", k.path)
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
			return nil, fmt.Errorf("the key of the vault is in the keyring, which does not give it: %w", err)
		}
	}
	ident, err := age.ParseX25519Identity(text)
	if err != nil {
		// The library's words may quote the key.
		return nil, fmt.Errorf("%s does not hold the key of a vault", k.path)
	}
	return ident, nil
}

// make makes a key. Whoever calls it holds the lock of the vault.
func (k keyFile) make() (*age.X25519Identity, error) {
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
		// What the keyring gives back is the proof that it works.
		if err := k.prefer.set(account, text); err == nil {
			if back, err := k.prefer.get(account); err == nil && back == text {
				text = inKeyring + account
			}
		}
	}
	return ident, home.Replace(k.path, 0o600, []byte(text+"\n"))
}

// sessionKeyring is the keyring of this session, nil if there is none or ambit
// keeps everything elsewhere.
func sessionKeyring() keyring {
	if os.Getenv("AMBIT_HOME") != "" {
		return nil
	}
	// On Linux, asking for a bus that is not there would start one.
	if runtime.GOOS == "linux" && os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), "bus")); err != nil {
			return nil
		}
	}
	return newAsker(osKeyring{})
}

// osKeyring is that of the operating system. It may wait for a person for ever, so
// that it is asked through an asker.
type osKeyring struct{}

const service = "ambit"

func (osKeyring) get(account string) (string, error) { return oskeyring.Get(service, account) }

func (osKeyring) set(account, text string) error { return oskeyring.Set(service, account, text) }
