package grant

import (
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/state"
)

// Resign signs every grant of some books anew under next, in a transaction.
// Those that are not as they were signed stay so: they count under neither key. It
// tells how many it signed.
func Resign(tx state.Tx, was, next *books.Books) (signed int, err error) {
	list, err := Of(was).query(tx, func(*Grant) bool { return true }, "")
	if err != nil {
		return 0, err
	}
	to := Of(next)
	for _, g := range list {
		if g.Changed {
			continue
		}
		if err := to.put(tx, g); err != nil {
			return 0, err
		}
		signed++
	}
	return signed, nil
}
