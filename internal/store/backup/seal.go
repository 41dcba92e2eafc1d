package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Lock determines how a backup is encrypted. The zero Lock does not encrypt.
type Lock struct {
	Passphrase string
	// Recipients are age public keys (age1…).
	Recipients []string
}

// Seal returns a writer that encrypts to w. The caller must close it.
func (l Lock) Seal(w io.Writer) (io.WriteCloser, error) {
	var to []age.Recipient
	for _, text := range l.Recipients {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not an age recipient: recipients begin with age1", text)
		}
		to = append(to, r)
	}
	if l.Passphrase != "" {
		if len(to) > 0 {
			return nil, errors.New("a backup is encrypted to a passphrase or to recipients, not to both")
		}
		r, err := age.NewScryptRecipient(l.Passphrase)
		if err != nil {
			return nil, err
		}
		to = append(to, r)
	}
	if len(to) == 0 {
		return nopCloser{w}, nil
	}
	return age.Encrypt(w, to...)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Key decrypts a backup.
type Key struct {
	Passphrase string
	// Identities is the text of an age identity file.
	Identities string
}

// intro begins an age file.
const intro = "age-encryption.org/"

// ErrSealed means that a backup is encrypted and the key does not decrypt it.
var ErrSealed = errors.New("the backup is encrypted, and the key does not decrypt it")

// Sealed reports whether r contains an encrypted backup.
func Sealed(r *bufio.Reader) bool {
	head, _ := r.Peek(len(intro))
	return string(head) == intro
}

// Open decrypts a backup. It returns a plain backup unchanged.
func (k Key) Open(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if !Sealed(in) {
		return in, nil
	}
	var by []age.Identity
	if k.Identities != "" {
		ids, err := age.ParseIdentities(strings.NewReader(k.Identities))
		if err != nil {
			return nil, errors.New("the identity file contains no age identities")
		}
		by = ids
	}
	if k.Passphrase != "" {
		id, err := age.NewScryptIdentity(k.Passphrase)
		if err != nil {
			return nil, err
		}
		by = append(by, id)
	}
	if len(by) == 0 {
		return nil, ErrSealed
	}
	out, err := age.Decrypt(in, by...)
	if err != nil {
		return nil, ErrSealed
	}
	return out, nil
}
