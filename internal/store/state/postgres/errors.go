package postgres

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// again reports whether a transaction conflicted with another one and may run again.
func again(err error) bool {
	c := code(err)
	return c == "40001" || c == "40P01" // serialization failure, deadlock
}

var kinds = map[string]error{
	"25006": state.ErrReadOnly, // a read-only server
	"42501": state.ErrReadOnly, // insufficient privilege
	"53100": state.ErrFull,
	"XX001": state.ErrDamaged,
	"XX002": state.ErrDamaged,
}

// explain wraps the server's error in the error of package state that it stands for.
func explain(err error) error { return engine.Explain(kinds[code(err)], err) }

// once removes repeated lines from an error's text: pgx reports the same failure for the
// attempts with and without TLS.
type once struct{ error }

func (e once) Error() string {
	var lines []string
	for line := range strings.SplitSeq(e.error.Error(), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (e once) Unwrap() error { return e.error }
