package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/validate"
)

// Schema is a JSON Schema for arguments or results.
type Schema struct{ *validate.Schema }

// NewSchema returns a Schema for the text of a JSON Schema. An empty text accepts every value.
func NewSchema(text string) Schema { return Schema{validate.New(text)} }

// Input refuses arguments that do not match the schema.
func (s Schema) Input(ctx context.Context, arguments jsontext.Value) *call.Refusal {
	problems, err := s.Check(ctx, arguments)
	if err != nil && errors.Is(err, ctx.Err()) {
		return call.Refuse(StageIn, call.TimedOut, "the call was cancelled before its arguments were checked")
	}
	if err != nil {
		return call.Refuse(StageIn, call.InputInvalid,
			"the arguments could not be checked against the tool's schema: %v", err)
	}
	if len(problems) == 0 {
		return nil
	}
	return call.Refuse(StageIn, call.InputInvalid, "the arguments do not match the tool's schema: %s", list(problems))
}

// Output refuses a result that does not match the schema. It also refuses a result with duplicate keys, because another
// parser could use a different value than the one that was checked. It checks the result even if the call was
// cancelled, because the record of the call contains the outcome.
func (s Schema) Output(result jsontext.Value) *call.Refusal {
	problems, err := s.Check(context.Background(), result)
	if err == nil && len(problems) == 0 {
		if s.Empty() || result.IsValid() {
			return nil
		}
		// If a key occurs twice, only the last value was checked against the schema.
		problems = []validate.Problem{{Message: "has a duplicate key"}}
	}
	said := "could not be checked against its schema"
	switch {
	case err == nil:
		said = "does not match its schema: " + list(problems)
	case errors.Is(err, validate.ErrTooMuchWork):
		said += ": " + err.Error()
	}
	r := call.Refuse(StageOut, call.OutputInvalid, "the result %s", said)
	r.Effect = call.EffectDone
	return r
}

func list(problems []validate.Problem) string {
	said := make([]string, len(problems))
	for i, p := range problems {
		if said[i] = fmt.Sprintf("%q %s", p.Pointer, p.Message); p.Pointer == "" {
			said[i] = "it " + p.Message
		}
	}
	return strings.Join(said, "; ")
}
