package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

// pinned is the hash of a package when it was first fetched here.
type pinned struct {
	Kind    pack.Kind `json:"kind"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Digest  string    `json:"digest"`
}

// Pin makes sure that a package without a hash from its registry runs from the store,
// without install scripts, and with the content that was first fetched here. Other
// packages are not changed.
func Pin(ctx context.Context, h home.Home, f *Found, progress pack.Progress) error {
	kind := f.Recipe.Kind
	if !f.Server.Placeholder || kind != pack.NPM && kind != pack.PyPI {
		return nil
	}
	ref, err := pack.Identify(f.Server)
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(string(kind) + "\x00" + ref.Name + "\x00" + ref.Version))
	file := filepath.Join(h.Dir(), "registry", "pins", hex.EncodeToString(key[:16])+".json")
	var was pinned
	text, err := os.ReadFile(file)
	known := err == nil && json.Unmarshal(text, &was) == nil && was.Kind == kind && was.Name == ref.Name && was.Version == ref.Version && tooluri.IsDigest(was.Digest)
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
