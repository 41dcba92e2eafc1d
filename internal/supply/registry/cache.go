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
	// fresh is how long a cached answer is used without a request.
	fresh = time.Hour
	// stale is how long it is used while the registry is unreachable.
	stale = 30 * 24 * time.Hour
)

// cache keeps the answers of registries, one file per server.
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

// through returns the cached answer if it is fresh. Otherwise it asks, and falls back
// to an older answer if the registry is unreachable. An answer from the future is
// ignored.
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
				warning = fmt.Sprintf("the registry's answer cannot be cached: %v", err)
			}
		}
		return list, warning, nil
	case errors.Is(err, ErrNotFound):
		_ = os.Remove(file) // the server was removed from the registry
		return nil, "", err
	case have && age >= 0 && age < stale:
		return k.Answer, fmt.Sprintf("the registry is unreachable; using its answer of %s", k.At.UTC().Format(time.DateOnly)), nil
	}
	return nil, "", err
}
