package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNotOwner means that a home belongs to another user.
var ErrNotOwner = errors.New("it belongs to another user")

// CheckOwner fails if the user of this process does not own the file of the root key.
// Permission to read the file is not enough, and neither is being root, who can become the
// owner first. A missing file passes: this user will create it.
func CheckOwner(root string) error {
	info, err := os.Stat(root) // follows links
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
