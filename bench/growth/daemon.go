package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// writeAgent writes the manifest of an agent with one server that has the given number of tools. The tools read, unless
// the last parameters give the side effects of the first tools.
func (s *setup) writeAgent(dir, name string, tools int, effects ...string) error {
	list := make([]any, tools)
	for i := range list {
		effect := "read"
		if i < len(effects) {
			effect = effects[i]
		}
		list[i] = map[string]any{"name": toolName(i), "side_effect_class": effect}
	}
	text, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/" + name, "description": "Repeats its input.", "allowed_side_effects": []string{"read", "write"},
		"servers": []any{map[string]any{"alias": "stub", "transport": "http", "endpoint": fmt.Sprintf("%s/%d", s.stub.url, tools), "version": "1.0.0", "tools": list}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600)
}

// daemon is a running "ambit serve".
type daemon struct {
	cmd    *exec.Cmd
	home   string
	url    string
	bearer string
	link   string        // the address that signs a person in to the console
	up     time.Duration // the time from the start of the process until it listens
	ready  time.Duration // the time from the start of the process until all agents are ready
	client *http.Client
}

// serve starts a daemon with a new home folder. It waits until the given number of agents is ready.
func (s *setup) serve(ctx context.Context, agents string, want int) (*daemon, error) {
	home, err := os.MkdirTemp(s.dir, "home-")
	if err != nil {
		return nil, err
	}
	return s.serveIn(ctx, home, agents, want)
}

// serveIn is like serve, but it uses an existing home folder and passes more arguments.
func (s *setup) serveIn(ctx context.Context, home, agents string, want int, more ...string) (*daemon, error) {
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--agents", agents, "--json"}, more...)
	cmd := exec.CommandContext(ctx, s.ambit, args...)
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, home: home, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}}
	listening := make(chan time.Duration, 1)
	go func() { listening <- untilExists(filepath.Join(home, "daemon.json"), start) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		d.close()
		return nil, fmt.Errorf("ambit did not start: %w: %.500s", err, stderr.String())
	}
	d.up = <-listening
	go func() { _, _ = io.Copy(io.Discard, out) }()
	var is struct {
		URL     string `json:"url"`
		KeyFile string `json:"key_file"`
		Console string `json:"console"`
	}
	err = json.Unmarshal([]byte(line), &is)
	if err == nil {
		var secret []byte
		secret, err = os.ReadFile(is.KeyFile)
		d.url, d.bearer, d.link = is.URL, strings.TrimSpace(string(secret)), is.Console
	}
	if err == nil {
		err = d.wait(ctx, want)
	}
	d.ready = time.Since(start)
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// untilExists returns the time from start until a file exists, which is at most ten minutes.
func untilExists(file string, start time.Time) time.Duration {
	for time.Since(start) < 10*time.Minute {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(500 * time.Microsecond)
	}
	return time.Since(start)
}

// wait polls the daemon until the given number of agents is ready.
func (d *daemon) wait(ctx context.Context, want int) error {
	for {
		var list struct {
			Agents []struct{ Name, State, Error string }
		}
		asked := time.Now()
		if err := d.get(ctx, "/api/v1/agents", &list); err != nil {
			return err
		}
		pause := max(20*time.Millisecond, 10*time.Since(asked)) // the list of many agents must not slow their start down
		ready := 0
		for _, a := range list.Agents {
			switch a.State {
			case "ready":
				ready++
			case "starting":
			default:
				return fmt.Errorf("agent %s is %s: %s", a.Name, a.State, a.Error)
			}
		}
		if ready == want {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+d.bearer)
	answer, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// memory returns the daemon's resident memory in bytes.
func (d *daemon) memory() int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// used returns the daemon's CPU time.
func (d *daemon) used() time.Duration { return cpuOf(d.cmd.Process.Pid) }

func (d *daemon) close() {
	d.client.CloseIdleConnections()
	_ = d.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(20*time.Second, func() { _ = d.cmd.Process.Kill() })
	_ = d.cmd.Wait()
	timer.Stop()
}

// session is a client's MCP session with one agent.
type session struct {
	d   *daemon
	url string
	id  string
	n   int
}

func (d *daemon) connect(ctx context.Context, agent string) (*session, error) {
	s := &session{d: d, url: d.url + "/mcp/" + agent}
	_, err := s.ask(ctx, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	return s, err
}

// ask sends a request and returns the whole answer.
func (s *session) ask(ctx context.Context, method, params string) ([]byte, error) {
	s.n++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, s.n, method, params)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.d.bearer)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if s.id != "" {
		r.Header.Set("Mcp-Session-Id", s.id)
	}
	answer, err := s.d.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.300s", method, answer.Status, text)
	}
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		s.id = id
	}
	return text, nil
}

var errWrong = errors.New("unexpected answer")

// call calls a tool and checks the answer.
func (s *session) call(ctx context.Context, tool string) error {
	text, err := s.ask(ctx, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"text":"sixty-four bytes or so of a text that goes there and back"}}`, tool))
	if err == nil && (!bytes.Contains(text, []byte("there and back")) || bytes.Contains(text, []byte(`"isError":true`))) {
		err = fmt.Errorf("%w: %.300s", errWrong, text)
	}
	return err
}
