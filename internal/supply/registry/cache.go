package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	// A cached answer that is younger than freshFor is used without a request.
	freshFor = time.Hour
	// If the registry is unreachable, a cached answer that is younger than staleFor is used.
	staleFor = 30 * 24 * time.Hour
)

// cache stores the answers from registries, one file for each server.
type cache struct {
	dir string
	now func() time.Time
}

func cacheDir(h home.Home) string { return filepath.Join(h.Dir(), "registry", "cache") }

// cacheEntry is the content of a cache file.
type cacheEntry struct {
	Key    string    `json:"key"`
	At     time.Time `json:"at"`
	Answer []Listing `json:"answer"`
}

// get returns the cached answer for key if it is younger than freshFor. Otherwise it calls fetch and caches the
// result. If the registry is unreachable, get falls back to a cached answer that is younger than staleFor and returns
// a warning. It ignores cached answers whose time is in the future.
func (c cache) get(key string, fetch func() ([]Listing, error)) (list []Listing, warning string, err error) {
	file := filepath.Join(c.dir, hashed([]byte(key)))
	var k cacheEntry
	text, readErr := os.ReadFile(file)
	have := readErr == nil && json.Unmarshal(text, &k) == nil && k.Key == key
	age := c.now().Sub(k.At)
	if have && age >= 0 && age < freshFor {
		return k.Answer, "", nil
	}
	list, err = fetch()
	switch {
	case err == nil:
		if text, err := json.Marshal(cacheEntry{key, c.now(), list}); err == nil {
			if err := write(file, text); err != nil {
				warning = fmt.Sprintf("the registry's answer could not be cached: %v", err)
			}
		}
		return list, warning, nil
	case errors.Is(err, ErrNotFound):
		_ = os.Remove(file) // the server was removed from the registry
		return nil, "", err
	case have && age >= 0 && age < staleFor:
		return k.Answer, fmt.Sprintf("the registry is unreachable; ambit uses the cached answer from %s",
			k.At.UTC().Format(time.DateOnly)), nil
	}
	return nil, "", err
}
