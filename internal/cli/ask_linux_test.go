package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
)

// questions collects the output of ambit. It closes the channel asked when the output contains the text
// in the field wait.
type questions struct {
	mu    sync.Mutex
	shown bytes.Buffer
	wait  string
	asked chan struct{}
}

func (q *questions) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := q.shown.Write(p)
	if q.asked != nil && strings.Contains(q.shown.String(), q.wait) {
		close(q.asked)
		q.asked = nil
	}
	return n, err
}

func (q *questions) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shown.String()
}

// interruptAt interrupts ambit while it waits for the answer to a question. It types the answer only after
// ambit has exited.
func interruptAt(t *testing.T, question, answer string, args ...string) {
	t.Helper()
	person, program := terminalPair(t)
	asked := make(chan struct{})
	shown := &questions{wait: question, asked: asked}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, args, program, &bytes.Buffer{}, shown) }()
	select {
	case <-asked:
	case code := <-ended:
		t.Fatalf("ambit exited with %d before it asked the question: %s", code, shown)
	}
	hidden := !strings.Contains(question, "[y/N]")
	for deadline := time.Now().Add(30 * time.Second); hidden && echoes(t, program); {
		if time.Now().After(deadline) {
			t.Fatal("the terminal still echoes input")
		}
		time.Sleep(time.Millisecond) // a poll: there is no event to wait for
	}
	interrupt()
	var code int
	select {
	case code = <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("ambit still waits for an answer 30 seconds after the interrupt")
	}
	if !echoes(t, program) {
		t.Error("after the interrupt, the terminal does not echo input")
	}
	if _, err := person.WriteString(answer + "\n"); err != nil {
		t.Fatal(err)
	}
	if want := question + "\nambit: interrupted while waiting for your answer, so ambit stopped\n"; code != 130 || !strings.HasSuffix(shown.String(), want) {
		t.Errorf("exit %d: %s", code, shown)
	}
}

// ambit ignores input that is typed after an interrupt. It stores and writes nothing.
func TestInterruptedQuestion(t *testing.T) {
	t.Run("secret", func(t *testing.T) {
		t.Setenv("AMBIT_HOME", t.TempDir())
		interruptAt(t, "token of unknown: ", "canary-3e9d51", "secret", "set", "unknown", "token")
		var list, errOut bytes.Buffer
		if code := cli.Run(t.Context(), []string{"secret", "list"}, strings.NewReader(""), &list, &errOut); code != 0 || strings.Contains(list.String(), "token") {
			t.Errorf("exit %d: %s", code, list.String())
		}
	})
	t.Run("backup", func(t *testing.T) {
		t.Setenv("AMBIT_HOME", t.TempDir())
		file := filepath.Join(t.TempDir(), "file")
		interruptAt(t, "passphrase for the backup: ", "canary-3e9d51", "backup", file)
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the backup file exists, or Stat failed: %v", err)
		}
	})
	t.Run("lock", func(t *testing.T) {
		t.Setenv("AMBIT_HOME", t.TempDir())
		t.Chdir(unpack(t, "lock.txtar"))
		read := func(name string) string {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		var out, errOut bytes.Buffer
		if code := cli.Run(t.Context(), []string{"lock", "agent.json"}, strings.NewReader(""), &out, &errOut); code != 0 {
			t.Fatalf("exit %d: %s", code, errOut.String())
		}
		// Without the interrupt, the next lock would rewrite both files.
		for name, text := range map[string]string{"agent.json": read("unlocked.json"), "tools.json": read("poisoned.json")} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		lock := read("ambit.lock")
		interruptAt(t, "lock these changes? [y/N] ", "y", "lock", "agent.json")
		if read("ambit.lock") != lock || read("agent.json") != read("unlocked.json") {
			t.Error("ambit.lock or agent.json was written after the interrupt")
		}
	})
}
