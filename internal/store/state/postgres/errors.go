package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ambit-run/ambit/internal/store/state"
)

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// again says that a transaction met another one and may be run again.
func again(err error) bool {
	switch code(err) {
	case "40001", "40P01": // serialization failure, deadlock
		return true
	}
	return false
}

// explain puts a known error in front of what the server said.
func explain(err error) error {
	var known error
	switch code(err) {
	case "25006", "42501": // a read-only server, or no rights
		known = state.ErrReadOnly
	case "53100":
		known = state.ErrFull
	case "XX001", "XX002":
		known = state.ErrDamaged
	default:
		return err
	}
	return fmt.Errorf("%w: %w", known, err)
}

// once is an error whose words repeat lines, without the repetition: a server is
// tried with and without TLS, and is not there either way.
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
