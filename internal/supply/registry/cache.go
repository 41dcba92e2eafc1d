package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	// fresh is how long an answer is taken without asking again.
	fresh = time.Hour
	// stale is how long it is good for when nobody can be asked.
	stale = 30 * 24 * time.Hour
)

// cache keeps answers of registries, one file for each server.
type cache struct {
	dir string
	now func() time.Time
}

func cacheDir(h home.Home) string { return filepath.Join(h.Dir(), "registry", "cache") }

type kept struct {
	Key    string    `json:"key"`
	At     time.Time `json:"at"`
	Answer []Listing `json:"answer"`
}

// through gives the kept answer if it is fresh, asks otherwise, and falls back to
// an older one if nobody can be asked. An answer from the future is no answer.
func (c cache) through(key string, ask func() ([]Listing, error)) (list []Listing, warning string, err error) {
	sum := sha256.Sum256([]byte(key))
	file := filepath.Join(c.dir, hex.EncodeToString(sum[:16])+".json")
	var k kept
	text, readErr := os.ReadFile(file)
	have := readErr == nil && json.Unmarshal(text, &k) == nil && k.Key == key
	age := c.now().Sub(k.At)
	if have && age >= 0 && age < fresh {
		return k.Answer, "", nil
	}
	list, err = ask()
	switch {
	case err == nil:
		if text, err := json.Marshal(kept{key, c.now(), list}); err == nil {
			if err := write(file, text); err != nil {
				warning = fmt.Sprintf("the registry's answer cannot be kept: %v", err)
			}
		}
		return list, warning, nil
	case errors.Is(err, ErrNotFound):
		_ = os.Remove(file) // it was there once, and is not any more
		return nil, "", err
	case have && age >= 0 && age < stale:
		return k.Answer, fmt.Sprintf("the registry cannot be asked; its answer of %s is used", k.At.UTC().Format(time.DateOnly)), nil
	}
	return nil, "", err
}
