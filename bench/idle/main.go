// Command idle measures the memory of a daemon with many idle agents.
//
//	make build && bench/run idle
//
// Each agent has its own tool server. The daemon starts every server once to verify it, and then stops the idle
// servers. The command prints the daemon's resident memory and the number of its child processes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	server := flag.Bool("server", false, "run as a tool server; only the benchmark itself sets this flag")
	agents := flag.Int("agents", 100, "number of agents")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	flag.Parse()
	err := error(nil)
	if *server {
		err = serve()
	} else {
		err = run(*ambit, *agents)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func serve() error {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Text string `json:"text"`
	},
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	return s.Run(context.Background(), &mcp.StdioTransport{})
}

func run(ambit string, agents int) error {
	dir, err := os.MkdirTemp("", "idle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range agents {
		text, err := json.Marshal(map[string]any{
			"schema_version": 1, "agent": fmt.Sprintf("matrix://agent/a%d", i), "allowed_side_effects": []string{"read"},
			"servers": []any{map[string]any{
				"alias": "echo", "transport": "stdio", "command": self, "args": []string{"-server"}, "version": "1.0.0",
				"package_digest": "sha256:" + strings.Repeat("0", 64),
				"tools":          []any{map[string]any{"name": "echo", "side_effect_class": "read"}},
			}},
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("a%d.json", i)), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, ambit, "serve", "--agents", dir, "--listen", "127.0.0.1:0", "--json", "--idle", "5s")
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(dir, "home"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	start := time.Now()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("ambit did not start: %w", err)
	}
	fmt.Printf("%d agents with one server each; ready after %v\n", agents, time.Since(start).Round(time.Millisecond))
	most := 0
	for {
		n := children(cmd.Process.Pid)
		most = max(most, n)
		rss, err := resident(cmd.Process.Pid)
		if err != nil {
			return err
		}
		if n == 0 && most > 0 {
			fmt.Printf("at most %d child processes; all servers idle after %v: %.1f MiB, %.2f MiB for each agent\n",
				most, time.Since(start).Round(time.Second), float64(rss)/(1<<20), float64(rss)/(1<<20)/float64(agents))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes are still running, with %.1f MiB", n, float64(rss)/(1<<20))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// children counts the direct child processes of a process.
func children(pid int) int {
	n := 0
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t) // reading fails if the thread has exited
		n += len(strings.Fields(string(text)))
	}
	return n
}

func resident(pid int) (int64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
