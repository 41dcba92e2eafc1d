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
	// maxShown is how much of the arguments the journal keeps.
	maxShown = 4 << 10
	// maxLooked is how far it looks for what begins in there and looks like a
	// credential.
	maxLooked = maxShown + 16<<10
)

// maxScanned bounds the arguments that are kept at all: of larger ones the
// journal has size and hash.
const maxScanned = 256 << 10

// showable is what the journal keeps of arguments: without ambit's own
// credentials, without what looks like one, by its name or by itself, and not
// too much of it. Arguments that cannot be scanned are not kept.
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

// shorten masks what has the name of a secret, and cuts.
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

// look is a look at arguments, kept for the next.
type look struct {
	bytes.Reader
	decoder *jsontext.Decoder
}

var looks = sync.Pool{New: func() any { return &look{decoder: new(jsontext.Decoder)} }}

// namesSecret reports whether a member of what may be shown has the name of a
// secret.
func namesSecret(b []byte) bool {
	l := looks.Get().(*look)
	defer looks.Put(l)
	l.Reset(b)
	d := l.decoder
	// They were canonical before they came here: no name is there twice.
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

// masked writes arguments anew, without what looks like a credential.
func masked(b []byte) []byte {
	var out bytes.Buffer
	d, e := jsontext.NewDecoder(bytes.NewBuffer(b)), jsontext.NewEncoder(&out)
	secret := 0 // the depth of the object one of whose members is a secret
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
		case !name && (t.Kind() == '"' && (secret > 0 || secretlike.Find(t.String()).Found()) || t.Kind() == '0' && secret > 0):
			_ = e.WriteToken(jsontext.String(mask))
		default:
			_ = e.WriteToken(t)
		}
		if !name && secret == d.StackDepth() {
			secret = 0 // its value is over
		}
	}
}
