package gateway

import (
	"bytes"
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

const (
	stageAdmit   = "admit"
	maxArguments = 16 << 20
	maxDepth     = 100
)

// exactNumbers keeps the digits of numbers: as doubles, different large integers would
// become equal.
var exactNumbers = []jsontext.Options{jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)}

// admit bounds the arguments and parses them strictly: one JSON object without duplicate
// keys, nested at most maxDepth deep. Later stages rely on that.
func admit(_ *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.Waited {
		if stopped := stillAllowed(ctx, stageAdmit); stopped != nil {
			return stopped
		}
	}
	if len(p.Arguments) == 0 {
		p.Arguments = jsontext.Value("{}")
	}
	if len(p.Arguments) > maxArguments {
		return call.Refuse(stageAdmit, call.InputTooLong,
			"the arguments have %d bytes; at most %d are allowed", len(p.Arguments), maxArguments)
	}
	if p.Arguments.Kind() != '{' {
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are not a JSON object")
	}
	if deeper(p.Arguments, maxDepth) {
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are nested more than %d levels deep", maxDepth)
	}
	canonical := p.Arguments.Clone()
	if err := canonical.Canonicalize(exactNumbers...); err != nil {
		// The parser's message quotes the arguments, so only the position is reported.
		what, at := "a syntax error", int64(0)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			what = "a duplicate key"
		}
		if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			at = syntax.ByteOffset
		}
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are not valid JSON at byte %d (%s)", at, what)
	}
	p.canonical = canonical
	return nil
}

// stillAllowed stops a call whose caller has lost access while it waited.
func stillAllowed(ctx context.Context, stage string) *call.Refusal {
	err := call.Standing(ctx)
	if err == nil {
		return nil
	}
	if stopped, ok := errors.AsType[*call.Refusal](err); ok {
		return stopped
	}
	return StoreFailed(stage, err)
}

// deeper reports whether brackets are nested more than levels deep. The JSON may be
// invalid.
func deeper(b []byte, levels int) bool {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if depth++; depth > levels {
				return true
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				skip := bytes.IndexAny(b[i:], `"\`)
				if skip < 0 {
					return false // a string without an end, as the reader will say
				}
				if i += skip; b[i] == '"' {
					break
				}
				i++ // whatever is escaped
			}
		}
	}
	return false
}
