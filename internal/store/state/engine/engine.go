// Package engine is what the two engines of state share: how transactions are
// committed together, how waiters hear of commits, and which arguments may be
// given.
package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/store/state"
)

// ErrEnded is the error of a transaction that is used after its end.
var ErrEnded = fmt.Errorf("%w: it has ended", state.ErrTx)

// ErrNested is the error of a statement inside Query.
var ErrNested = fmt.Errorf("%w: a statement inside Query", state.ErrTx)

// Check finds arguments that one of the engines would not take as they are.
// SQLite stores any text, PostgreSQL only UTF-8 without NUL.
func Check(args []any) error {
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil, int64, []byte:
		case string:
			if !utf8.ValidString(arg) || strings.IndexByte(arg, 0) >= 0 {
				return fmt.Errorf("%w: argument $%d is not UTF-8 text without NUL", state.ErrTx, i+1)
			}
		default:
			return fmt.Errorf("%w: argument $%d is a %T", state.ErrTx, i+1, arg)
		}
	}
	return nil
}
