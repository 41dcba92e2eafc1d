package sandbox

import (
	"context"
	"errors"
)

// Finding is what was found out about one mechanism.
type Finding struct {
	Name        string
	OK          bool
	Detail, Fix string
}

// SurveyStrong tells whether the tier strong can be given, as canaries found it.
// folder is where runsc may be, and where proofs are kept.
func SurveyStrong(ctx context.Context, folder string) Finding {
	f := Finding{Name: "gvisor"}
	if err := Check(ctx, Strong, folder); err != nil {
		f.Detail = err.Error()
		if u, ok := errors.AsType[*Unavailable](err); ok {
			f.Detail, f.Fix = u.Message, u.Hint
		}
		return f
	}
	f.OK, f.Detail = true, "programs can be isolated at the tier strong: canaries were stopped"
	return f
}
