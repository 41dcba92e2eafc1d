package gateway

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

const (
	// maxShown bounds the arguments in the journal.
	maxShown = 4 << 10
	// maxLooked bounds the search for credentials that begin within maxShown.
	maxLooked = maxShown + 16<<10
)

// maxScanned bounds the arguments that are scanned. The journal has only the size and
// hash of larger ones.
const maxScanned = 256 << 10

// showable returns the arguments for the journal, shortened and without credentials:
// those of ambit and those that a name or a pattern shows to be one. Arguments that
// cannot be scanned are left out.
func (g *Gateway) showable(canonical []byte) []byte {
	if len(canonical) > maxScanned {
		return nil
	}
	scanned, stopped := g.guards.scan(canonical, func([]guard.Finding) {})
	if stopped != nil {
		return nil
	}
	return shorten(scanned)
}

// shorten masks members with the name of a secret, and cuts.
func shorten(canonical []byte) []byte {
	shown := canonical
	if secretlike.Find(string(canonical[:min(len(canonical), maxLooked)])).Found() || namesSecret(canonical) {
		shown = masked(canonical)
	}
	if len(shown) > maxShown {
		b, _ := jsontext.AppendQuote(nil, diag.Cut(string(shown[:maxShown+1]), maxShown))
		return b
	}
	return shown
}

// look is a reusable reader of arguments.
type look struct {
	bytes.Reader
	decoder *jsontext.Decoder
}

var looks = sync.Pool{New: func() any { return &look{decoder: new(jsontext.Decoder)} }}

// namesSecret reports whether a member within maxShown has the name of a secret.
func namesSecret(b []byte) bool {
	l := looks.Get().(*look)
	defer looks.Put(l)
	l.Reset(b)
	d := l.decoder
	// Canonical arguments have no duplicate keys.
	d.Reset(&l.Reader, jsontext.AllowDuplicateNames(true))
	for d.InputOffset() < maxShown {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		if kind, n := d.StackIndex(d.StackDepth()); t.Kind() == '"' && kind == '{' && n%2 == 1 && secretlike.Name(t.String()) {
			return true
		}
	}
	return false
}

const mask = "[secret]"

// masked copies arguments, with a mask for each credential.
func masked(b []byte) []byte {
	var out bytes.Buffer
	d, e := jsontext.NewDecoder(bytes.NewBuffer(b)), jsontext.NewEncoder(&out)
	secret := 0 // the depth of the object with the secret member
	for {
		t, err := d.ReadToken()
		if err != nil {
			return bytes.TrimSpace(out.Bytes())
		}
		kind, n := d.StackIndex(d.StackDepth())
		name := t.Kind() == '"' && kind == '{' && n%2 == 1
		if name && secret == 0 && secretlike.Name(t.String()) {
			secret = d.StackDepth()
			_ = e.WriteToken(t)
			continue
		}
		if name && secret == d.StackDepth() {
			secret = 0
		}
		switch {
		case !name && (t.Kind() == '"' && (secret > 0 || secretlike.Find(t.String()).Found()) ||
			t.Kind() == '0' && secret > 0):
			_ = e.WriteToken(jsontext.String(mask))
		default:
			_ = e.WriteToken(t)
		}
		if !name && secret == d.StackDepth() {
			secret = 0 // end of its value
		}
	}
}
