//go:build linux

package program_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestUnconfined checks that the contract and the time limit are enforced without a sandbox. No
// process of the program's process group may keep running.
func TestUnconfined(t *testing.T) {
	marker := "marker-" + rand.Text()
	child := "import subprocess\nsubprocess.Popen(['python3', '-c', 'import time; time.sleep(600)', '" + marker + "'])\n"
	ok := `print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': os.getcwd() + ' ' + ' '.join(sorted(os.environ)), 'sources': []}))`
	t.Setenv("PLANTED", "secret")
	for _, tt := range []struct {
		name, code string
		reason     program.Reason
	}{
		{"an answer", ok, ""},
		{"an answer, and a child", child + ok, ""},
		{"exit code", ok + "\nsys.exit(3)", program.ExitCode},
		{"signal", "os.kill(os.getpid(), 9)", program.ExitCode},
		{"too much", "while True: sys.stdout.write('x' * (1 << 20))", program.TooLarge},
		{"too much to stderr", "while True: sys.stderr.write('x' * 1000 + '\\n')", program.TooLarge},
		{"too long", child + "time.sleep(600)", program.TimedOut},
		{"cancelled", child + "print('up', file=sys.stderr, flush=True)\ntime.sleep(600)", program.Cancelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.options.Unconfined = true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.options.Log = func(string) {}
			switch tt.reason {
			case program.Cancelled:
				r.options.Log = func(string) { cancel() }
			case program.TimedOut:
				r.agent.Resources.WallClock = 500 * time.Millisecond
			}
			r.write(t, "main.py", "import json, os, sys, time\ni = json.loads(sys.stdin.readline())\n"+tt.code+"\n")
			result, err := r.act(ctx)
			f, failed := errors.AsType[*call.Refusal](err)
			switch {
			case tt.reason == "" && err != nil, failed && f.Reason != tt.reason, tt.reason != "" && !failed:
				t.Fatalf("error = %v, want the reason %q", err, tt.reason)
			case failed && f.Effect == call.NoEffect:
				t.Error("the refusal reports no effect, but an unconfined program may have had an effect")
			case tt.reason == "":
				text, _ := structured(t, result)["text"].(string)
				if !strings.HasPrefix(text, r.folder+" ") || strings.Contains(text, "PLANTED") {
					t.Errorf("the program sees the wrong folder or the variable PLANTED: %s", text)
				}
			}
			files, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				// A process may exit before its file is read.
				if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(marker)) {
					t.Errorf("the process of %s is still running", file)
				}
			}
		})
	}
}
