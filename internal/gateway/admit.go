package gateway

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/validate"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

const (
	stageAdmit   = "admit"
	maxArguments = 16 << 20
	maxDepth     = 100
)

// exactNumbers makes Canonicalize keep the digits of every number. By default, Canonicalize converts numbers to
// float64, which can make two different large integers equal.
var exactNumbers = []jsontext.Options{jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)}

// admit checks the size and the syntax of the arguments. The arguments must be one JSON object without duplicate
// keys, at most maxDepth levels deep. Later stages rely on these checks.
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
	if rawjson.Deeper(p.Arguments, maxDepth) {
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments are nested more than %d levels deep", maxDepth)
	}
	if err := validate.Bounds(p.Arguments); err != nil {
		return call.Refuse(stageAdmit, call.InputInvalid, "the arguments contain %v", err)
	}
	canonical := p.Arguments.Clone()
	if err := canonical.Canonicalize(exactNumbers...); err != nil {
		// The refusal contains only the position, because the parser's error quotes the arguments.
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

// stillAllowed returns a refusal if the caller lost access while the call waited.
func stillAllowed(ctx context.Context, stage string) *call.Refusal {
	err := call.Standing(ctx)
	if err == nil {
		return nil
	}
	if stopped, ok := errors.AsType[*call.Refusal](err); ok {
		return stopped
	}
	return StoreFailed(ctx, stage, err)
}
