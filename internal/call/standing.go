package call

import "context"

type standingKey struct{}

// WithStanding lets whoever carries a call out ask again whether the caller is
// still who may call. A call may wait for long, for its turn or for a person, and
// what its caller showed when it came may have been revoked by then.
func WithStanding(ctx context.Context, still func(context.Context) error) context.Context {
	return context.WithValue(ctx, standingKey{}, still)
}

// Standing says why the caller may not call any more: with a [*Refusal], or with
// the error for which it cannot be told. A caller of whom nobody can ask stands.
func Standing(ctx context.Context) error {
	if still, ok := ctx.Value(standingKey{}).(func(context.Context) error); ok {
		return still(ctx)
	}
	return nil
}
