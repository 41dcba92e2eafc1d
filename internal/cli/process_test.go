package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is ambit in a separate process: a daemon or a worker.
type process struct {
	*exec.Cmd
	t        *testing.T
	url, key string // set only for a daemon

	mu   sync.Mutex
	log  bytes.Buffer
	more chan struct{} // a channel that receives a value when text is added to log

	ended chan struct{} // a channel that is closed after the process has exited and err is set
	err   error
}

// start starts ambit and waits until it is ready. The process is killed at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("ambit", args...), t: t, more: make(chan struct{}, 1), ended: make(chan struct{})}
	p.Stderr, p.WaitDelay = p, 10*time.Second // a child of ambit can keep stderr open
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	go func() {
		defer close(p.ended)
		p.err = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("ambit %v printed: %s", args, p.output())
		}
	})
	var ready struct {
		URL     string
		KeyFile string `json:"key_file"`
	}
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		t.Fatalf("%v did not start: %v, %q", args, err, line)
	}
	p.url = ready.URL
	if ready.KeyFile != "" {
		key, err := os.ReadFile(ready.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		p.key = strings.TrimSpace(string(key))
	}
	return p
}

// startDaemon starts a daemon on a free port.
func startDaemon(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...)
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default: // the channel already contains a value
	}
	return p.log.Write(text)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// waitFor waits until the output of the process contains text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	timeout := time.After(time.Minute)
	for !strings.Contains(p.output(), text) {
		select {
		case <-p.more:
		case <-timeout:
			p.t.Fatalf("the output does not contain %q: %s", text, p.output())
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// waitForExit waits until a process that is shutting down has exited. It fails the test if the exit code is not 0.
func (p *process) waitForExit() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Errorf("the process exited with %v: %s", p.err, p.output())
		}
	case <-time.After(time.Minute):
		p.t.Error("the process has not exited after a minute")
	}
}

// stop stops the process and waits until it has exited.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.waitForExit()
}

// ask sends a request with the key from the daemon's key file.
func (p *process) ask(method, path, body string) (status int, text string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(read)
}
