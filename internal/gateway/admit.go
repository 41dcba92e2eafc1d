package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/call"
)

const (
	stageAdmit   = "admit"
	maxArguments = 16 << 20
	maxDepth     = 100
)

// admit bounds the arguments and reads them once, strictly: one JSON object
// without duplicate keys, nested within reason. Later stages rely on that.
func admit(_ *Gateway, _ context.Context, p *passing) error {
	if len(p.Arguments) == 0 {
		p.Arguments = jsontext.Value("{}")
	}
	if len(p.Arguments) > maxArguments {
		return call.Refuse(stageAdmit, call.InputTooLong, "the arguments have %d bytes; at most %d are taken", len(p.Arguments), maxArguments)
	}
	d := jsontext.NewDecoder(bytes.NewReader(p.Arguments))
	if d.PeekKind() != '{' {
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are not a JSON object")
	}
	for {
		_, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			// The decoder's own words quote the arguments; its place is enough.
			return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are not valid JSON at byte %d (%s)", d.InputOffset(), kindOf(err))
		case d.StackDepth() > maxDepth:
			return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are nested more than %d levels deep", maxDepth)
		case d.StackDepth() == 0 && len(bytes.TrimSpace(p.Arguments[d.InputOffset():])) > 0:
			return call.Refuse(stageAdmit, call.InputInvalid, "something follows the arguments")
		}
	}
}

func kindOf(err error) string {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return "a duplicate key"
	}
	return "a syntax error"
}
