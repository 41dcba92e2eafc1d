package sqlite

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// A copy of this test program keeps a store locked. envKeeper is the environment variable that
// names this store.
const envKeeper = "AMBIT_TEST_KEEPER"

// TestMain fails if a test leaves a goroutine running.
func TestMain(m *testing.M) {
	if file := os.Getenv(envKeeper); file != "" {
		if err := keep(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
