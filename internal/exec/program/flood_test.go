//go:build linux

package program

import (
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// TestFloodOnBothStreams can find a data race only under the race detector. The child process leaves the process group,
// so it is not killed between its writes to the two streams.
func TestFloodOnBothStreams(t *testing.T) {
	const child = "import os\nif os.fork() == 0:\n os.setsid(); os.write(1, b'long'); os.write(2, b'long')\nelse: os.wait()"
	out, err := unconfined(t.Context(), sandbox.Spec{
		Argv: []string{"python3", "-c", child}, Wall: time.Minute, MaxStdout: 1, MaxStderr: 1,
	})
	if err != nil || out.TooLarge != "stdout" && out.TooLarge != "stderr" {
		t.Errorf("TooLarge = %q, %v; want one of the streams", out.TooLarge, err)
	}
}
