package sqlite

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// envKeeper names the store that a copy of this test program keeps locked.
const envKeeper = "AMBIT_TEST_KEEPER"

// Whatever a test starts ends with it.
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
