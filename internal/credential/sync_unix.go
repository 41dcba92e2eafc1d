//go:build unix

package credential

import "os"

// syncFolder makes sure that a renamed file stays renamed.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
