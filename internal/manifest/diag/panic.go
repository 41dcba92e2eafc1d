package diag

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Panic describes a panic for the log: the value and the stack. Call Panic in the deferred function that recovered the
// value. A value that is not a runtime error can quote a message, so only its type is shown.
func Panic(value any) string {
	what := fmt.Sprintf("panic with a %T", value)
	if e, ok := value.(runtime.Error); ok {
		what = e.Error()
	}
	return what + "\n" + string(debug.Stack())
}
