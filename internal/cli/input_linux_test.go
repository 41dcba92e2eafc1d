package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/cli"
)

// An interrupt stops a verb that waits for its input: a named pipe without a writer, a named pipe whose writer writes
// nothing, or standard input.
func TestInterruptedInput(t *testing.T) {
	manifest, err := filepath.Abs(filepath.Join("..", "..", "agents", "default.json"))
	if err != nil {
		t.Fatal(err)
	}
	const pipe = "PIPE"
	for _, tt := range []struct {
		name    string
		open    bool // a writer opens the pipe
		args    []string
		message string
	}{
		{"dispatch without a writer", false, []string{"dispatch", "one", "--file", pipe}, "interrupted while reading PIPE"},
		{"dispatch", true, []string{"dispatch", "one", "--file", pipe}, "interrupted while reading PIPE"},
		{
			"dispatch from standard input", false,
			[]string{"dispatch", "one", "--file", "-"},
			"cannot read the task: interrupted while reading standard input",
		},
		{"call", true, []string{"call", manifest, "tool", "--input", "@" + pipe}, "interrupted while reading PIPE"},
		{
			"call from standard input", false,
			[]string{"call", manifest, "tool", "--input", "-"},
			"cannot read the arguments: interrupted while reading standard input",
		},
		{"guard", true, []string{"guard", "test", pipe}, "interrupted while reading PIPE"},
		{
			"guard from standard input", false,
			[]string{"guard", "test", "-"},
			"cannot read the text: interrupted while reading standard input",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("AMBIT_HOME", t.TempDir())
			t.Chdir(t.TempDir())
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			in, never := io.Pipe()
			defer never.Close()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out, errOut bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- cli.Run(ctx, tt.args, in, &out, &errOut) }()
			if tt.open {
				writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when ambit opens the pipe
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
			}
			interrupt()
			var code int
			select {
			case code = <-ended:
			case <-time.After(30 * time.Second):
				t.Error("ambit still reads its input 30 seconds after the interrupt")
			}
			// End the abandoned read. The pipe has no reader if ambit did not open it.
			writer, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				writer.Close()
			} else if !errors.Is(err, unix.ENXIO) {
				t.Error(err)
			}
			if want := "ambit: " + tt.message + "\n"; code != 130 || errOut.String() != want {
				t.Errorf("exit %d: %s, want exit 130: %s", code, errOut.String(), want)
			}
		})
	}
}
