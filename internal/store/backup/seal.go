package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Lock specifies how a backup is encrypted: with a passphrase, or with the public keys of its recipients. If neither is
// set, the backup is not encrypted.
type Lock struct {
	Passphrase string
	// Recipients lists age public keys (age1…).
	Recipients []string
}

// Seal returns a writer that encrypts data and writes the encrypted data to w. The caller must close the returned
// writer.
func (l Lock) Seal(w io.Writer) (io.WriteCloser, error) {
	var to []age.Recipient
	for _, text := range l.Recipients {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not an age recipient: a recipient begins with age1", text)
		}
		to = append(to, r)
	}
	if l.Passphrase != "" {
		if len(to) > 0 {
			return nil, errors.New("a backup can be encrypted with a passphrase or for recipients, but not both")
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

// Key contains the secrets that can decrypt a backup.
type Key struct {
	Passphrase string
	// Identities is the content of an age identity file.
	Identities string
}

// intro is the beginning of every age file.
const intro = "age-encryption.org/"

// ErrSealed means that a backup is encrypted and that the given Key cannot decrypt it.
var ErrSealed = errors.New("the backup is encrypted, and the given key cannot decrypt it")

// Sealed reports whether r contains an encrypted backup. It does not advance the reader.
func Sealed(r *bufio.Reader) bool {
	head, _ := r.Peek(len(intro))
	return string(head) == intro
}

// Open returns a reader for the decrypted content of r. If r is not encrypted, the reader returns the data unchanged.
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
