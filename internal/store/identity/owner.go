package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNotOwner says that a home belongs to another user.
var ErrNotOwner = errors.New("it belongs to another user")

// CheckOwner reports whether this process is the owner's: whether the file of the
// root key, which is all that makes an owner, belongs to its user. Being able to
// read the file is not enough, nor is being root, who can become that user. A
// file that is not there yet will be this user's.
func CheckOwner(root string) error {
	info, err := os.Stat(root) // not of a link to it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the root key: %w", err)
	}
	mine, err := owned(root, info)
	switch {
	case err != nil:
		return fmt.Errorf("the root key: %w", err)
	case !mine:
		return fmt.Errorf("the root key %s: %w", root, ErrNotOwner)
	}
	return nil
}
