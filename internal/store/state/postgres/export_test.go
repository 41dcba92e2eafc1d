package postgres

import (
	"context"

	"github.com/ambit-run/ambit/internal/store/state"
)

// OpenWith opens a store like a version of ambit that has only these schema steps.
func OpenWith(ctx context.Context, url string, list []string) (state.DB, error) {
	s, err := open(ctx, url, list)
	if err != nil {
		return nil, err
	}
	return s, nil
}
