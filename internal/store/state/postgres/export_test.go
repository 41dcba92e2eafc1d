package postgres

import (
	"context"

	"github.com/ambit-run/ambit/internal/store/state"
)

// OpenWith opens a store as an ambit with these steps would.
func OpenWith(ctx context.Context, url string, list []string) (state.DB, error) {
	s, err := open(ctx, url, list)
	if err != nil {
		return nil, err
	}
	return s, nil
}
