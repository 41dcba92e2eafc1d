package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

const (
	// maxShown is the maximum size of the arguments in a journal record.
	maxShown = 4 << 10
	// maxScanned is the maximum size of arguments that are scanned for the journal. For larger arguments, the journal
	// has only the size and a MAC.
	maxScanned = 256 << 10
)

// described contains the parts of a journal record that describe the arguments of a call.
type described struct {
	mac   string
	shown []byte        // nil if the arguments cannot be shown
	by    *guard.Output // the scan that removed the credentials
}

// describe returns the description of the arguments for the journal. The records of the intent and of the outcome have
// the same description, so the arguments are scanned again only if the stored credentials have changed.
func (g *Gateway) describe(p *inflight) described {
	by, _ := g.guards.scanner() // if there is no scanner, showable shows nothing
	if p.described.by != nil && p.described.by == by {
		return p.described
	}
	mac := g.store.Keys.MAC("arguments", p.canonical)
	d := described{mac: hex.EncodeToString(mac[:]), by: by}
	shown := jsontext.Value(p.toSend())
	if !p.checked {
		shown = g.guards.withoutPersonal(shown)
	}
	if shown != nil {
		d.shown = g.showable(shown)
	}
	if p.checked {
		p.described = d
	}
	return d
}

// showable returns the arguments for the journal: shortened and without credentials. It removes all stored
// credentials. It also removes values that look like a credential, or whose name is similar to "password". It returns
// nil if the arguments cannot be scanned.
func (g *Gateway) showable(canonical []byte) []byte {
	if len(canonical) > maxScanned {
		return nil
	}
	scanned, stopped := g.guards.scan(context.Background(), canonical, discard)
	if stopped != nil {
		return nil
	}
	shown := maskCredentials(scanned)
	if len(shown) > maxShown {
		shown, _ = jsontext.AppendQuote(nil, diag.Cut(string(shown[:maxShown+1]), maxShown))
	}
	return shown
}

const mask = `"[secret]"`

// maskCredentials replaces each value that looks like a credential with "[secret]". It stops after about maxShown bytes
// of output and appends the rest of b unmasked, so the caller must cut the output to maxShown bytes. It returns nil if
// b is not valid JSON.
func maskCredentials(b []byte) (out []byte) {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true))
	done := 0   // the part of b before this offset is already in out
	secret := 0 // the depth of the object that contains the current secret member, or 0
	for len(out)+int(d.InputOffset())-done <= maxShown {
		var v jsontext.Value
		var err error
		switch d.PeekKind() {
		case '{', '[', '}', ']':
			_, err = d.ReadToken()
		default:
			v, err = d.ReadValue()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil
		}
		within, n := d.StackIndex(d.StackDepth())
		text, isText := rawjson.Text(v)
		if isText && within == '{' && n%2 == 1 { // the name of a member
			if secret == 0 && secretlike.Name(text) {
				secret = d.StackDepth()
			}
			continue
		}
		if isText && (secret > 0 || secretlike.Find(text).Found()) || v.Kind() == '0' && secret > 0 {
			end := int(d.InputOffset())
			out, done = append(append(out, b[done:end-len(v)]...), mask...), end
		}
		if secret == d.StackDepth() {
			secret = 0 // the secret member ends here
		}
	}
	if done == 0 {
		return b
	}
	return append(out, b[done:]...)
}
