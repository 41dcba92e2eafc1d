package registry

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// pinned records the hash that a package had when it was first fetched on this machine.
type pinned struct {
	Kind    pack.Kind `json:"kind"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Digest  string    `json:"digest"`
}

// Pin pins the package of f if it is an npm or Python package for which the registry provides no hash. The package then
// runs from the store, without install scripts. Its content must be the same as when this machine first fetched the
// package. For all other packages, Pin does nothing.
func Pin(ctx context.Context, h home.Home, f *Found, progress pack.Progress) error {
	kind := f.Recipe.Kind
	if !f.Server.Placeholder || kind != pack.NPM && kind != pack.PyPI {
		return nil
	}
	ref, err := pack.Identify(f.Server)
	if err != nil {
		return err
	}
	file := filepath.Join(h.Dir(), "registry", "pins", hashed([]byte(string(kind)+"\x00"+ref.Name+"\x00"+ref.Version)))
	var was pinned
	text, err := os.ReadFile(file)
	known := err == nil && json.Unmarshal(text, &was) == nil && was.Kind == kind && was.Name == ref.Name &&
		was.Version == ref.Version && tooluri.IsDigest(was.Digest)
	want := pack.Want{}
	if known {
		want.Digest = was.Digest
	}
	store := pack.Store{Dir: h.Packages()}
	p, err := store.Fetch(ctx, ref, want, progress)
	if err != nil {
		return err
	}
	f.Server.Digest, f.Server.Placeholder = p.Digest, false
	if known {
		return nil
	}
	if text, err = json.Marshal(pinned{kind, ref.Name, ref.Version, p.Digest}); err != nil {
		return err
	}
	return write(file, text)
}
