package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
)

// oursClient calls tools through ambit's package mcpwire.
type oursClient struct{ conn *mcpwire.Conn }

func connectOurs(ctx context.Context, t mcpwire.Transport, legacy bool) (client, error) {
	conn := mcpwire.New(t, mcpwire.Options{Legacy: legacy, Modern: !legacy})
	if _, err := conn.Negotiate(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return oursClient{conn}, nil
}

func (c oursClient) echo(ctx context.Context, arguments json.RawMessage, text []byte) error {
	result, err := c.conn.CallTool(ctx, mcpwire.ToolCall{Name: "echo", Arguments: []byte(arguments)})
	if err == nil && !bytes.Contains(result, text) {
		err = errAnotherText
	}
	return err
}

func (c oursClient) close() { _ = c.conn.Close() }

// sdkClient calls tools through the official Go SDK.
type sdkClient struct{ session *mcp.ClientSession }

func connectSDK(ctx context.Context, t mcp.Transport, legacy bool) (client, error) {
	version := "2026-07-28"
	if legacy {
		version = "2025-11-25"
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := c.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	return sdkClient{session}, nil
}

func (c sdkClient) echo(ctx context.Context, arguments json.RawMessage, text []byte) error {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: arguments})
	if err != nil {
		return err
	}
	// The reference server adds "Echo: " before the text.
	if got, ok := result.Content[0].(*mcp.TextContent); !ok || !strings.HasSuffix(got.Text, string(text)) {
		return errAnotherText
	}
	return nil
}

func (c sdkClient) close() { _ = c.session.Close() }

// connect starts the servers and connects both clients over every transport.
func connect(ctx context.Context) (settings []setting, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	folder, err := os.MkdirTemp("", "ambit-bench-")
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, func() { _ = os.RemoveAll(folder) })
	echo := filepath.Join(folder, "echoserver")
	build := exec.CommandContext(ctx, "go", "build", "-C", "bench", "-o", echo, "./mcpwire/echoserver")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, nil, fmt.Errorf("cannot build echoserver; run the benchmark from the top folder of the project: %w", err)
	}

	s, err := start(echo, 4)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, s.stop)
	add := func(name string, sizes []int, legacy bool, ours mcpwire.Transport, peers mcp.Transport) error {
		a, err := connectOurs(ctx, ours, legacy)
		if err != nil {
			return fmt.Errorf("%s, ambit: %w", name, err)
		}
		closers = append([]func(){a.close}, closers...)
		b, err := connectSDK(ctx, peers, legacy)
		if err != nil {
			return fmt.Errorf("%s, go-sdk: %w", name, err)
		}
		closers = append([]func(){b.close}, closers...)
		for _, size := range sizes {
			settings = append(settings, setting{name: name, size: size, ours: a, peers: b})
		}
		return nil
	}
	for i, legacy := range []bool{true, false} {
		year := map[bool]string{true: "2025-11-25", false: "2026-07-28"}[legacy]
		sizes := []int{100, 30_000}
		a, b := s.pipes[2*i], s.pipes[2*i+1]
		if err := add("stdio "+year, sizes, legacy, mcpwire.Stdio(a.out, a.in), &mcp.IOTransport{Reader: b.out, Writer: b.in}); err != nil {
			return nil, nil, err
		}
		for _, form := range []string{"json", "sse"} {
			t, err := mcpwire.HTTP(s.url+"/"+form, mcpwire.HTTPOptions{})
			if err != nil {
				return nil, nil, err
			}
			if err := add("http "+form+" "+year, sizes, legacy, t, &mcp.StreamableClientTransport{Endpoint: s.url + "/" + form}); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := addEverything(add, &closers); err != nil {
		return nil, nil, err
	}
	return settings, closeAll, nil
}

// addEverything adds the reference server server-everything, if it is installed.
func addEverything(add func(string, []int, bool, mcpwire.Transport, mcp.Transport) error, closers *[]func()) error {
	script := "bench/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	node, err := exec.LookPath("node")
	if _, missing := os.Stat(script); err != nil || missing != nil {
		fmt.Fprintln(os.Stderr, "bench: skipping server-everything: node or its package is missing; run: npm ci --prefix bench")
		return nil
	}
	var ends [2]pipePair
	for i := range ends {
		cmd := exec.Command(node, script, "stdio")
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		ends[i] = pipePair{in: in, out: out}
		*closers = append(*closers, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	return add("server-everything", []int{100}, true,
		mcpwire.Stdio(ends[0].out, ends[0].in), &mcp.IOTransport{Reader: ends[1].out, Writer: ends[1].in})
}

// pipePair contains the client's ends of two pipes, which are the server's input and output.
type pipePair struct {
	in  io.WriteCloser
	out io.ReadCloser
}

// server is a running echoserver.
type server struct {
	url   string
	pipes []pipePair
	stop  func()
}

func start(program string, pipes int) (*server, error) {
	s := &server{}
	cmd := exec.Command(program, "-http", "-pipes", fmt.Sprint(pipes))
	cmd.Stderr = os.Stderr
	for range pipes {
		inR, inW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		outR, outW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, inR, outW)
		s.pipes = append(s.pipes, pipePair{in: inW, out: outR})
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	s.stop = func() { _ = stdin.Close(); _ = cmd.Wait() }
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("echoserver did not start: %w", err)
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}
