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

// process is ambit as a process of its own: a daemon or a worker.
type process struct {
	*exec.Cmd
	t        *testing.T
	url, key string // of a daemon

	mu   sync.Mutex
	log  bytes.Buffer
	more chan struct{} // something was added to the log

	ended chan struct{} // closed once err says how
	err   error
}

// start runs ambit until the test ends at the latest, and waits until it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("ambit", args...), t: t, more: make(chan struct{}, 1), ended: make(chan struct{})}
	p.Stderr, p.WaitDelay = p, 10*time.Second // what it started may hold its stderr
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
			t.Logf("%v said: %s", args, p.said())
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
		t.Fatalf("%v does not start: %v, %q", args, err, line)
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

// startDaemon starts one at an address of its own.
func startDaemon(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, args...)...)
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default: // a wake-up is already pending
	}
	return p.log.Write(text)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// until waits for a text in the output of the process.
func (p *process) until(word string) {
	p.t.Helper()
	never := time.After(time.Minute)
	for !strings.Contains(p.said(), word) {
		select {
		case <-p.more:
		case <-never:
			p.t.Fatalf("it never says %q: %s", word, p.said())
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// goes waits for a stopped process, which must exit with 0.
func (p *process) goes() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Errorf("it ended with %v: %s", p.err, p.said())
		}
	case <-time.After(time.Minute):
		p.t.Error("it does not end")
	}
}

// stop stops the process and waits for its end.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.goes()
}

// ask sends a request with the daemon's own key.
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
