// Command first measures how long a new user waits for the first result. It imports a client's configuration with six
// npm servers as one agent, installs the agent, and makes a call.
//
//	bench/run first
//
// The cold run has an empty home, so that npm downloads every package. The warm run imports the same file again. The
// command needs bin/ambit, which make build creates, and an npm registry.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const configuration = `{"mcpServers": {
  "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${userHome}/notes"]},
  "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
  "thinking": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-sequential-thinking"]},
  "everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]},
  "context7": {"command": "npx", "args": ["-y", "@upstash/context7-mcp"]},
  "github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"]}
}}`

// patience is the time limit for one command.
const patience = 10 * time.Minute

func main() {
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	flag.Parse()
	if err := run(*ambit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ambit string) error {
	ambit, err := filepath.Abs(ambit)
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "first")
	if err != nil {
		return err
	}
	defer remove(home)
	file := filepath.Join(home, ".cursor", "mcp.json")
	err = errors.Join(os.Mkdir(filepath.Join(home, "notes"), 0o700), os.Mkdir(filepath.Dir(file), 0o700),
		os.WriteFile(filepath.Join(home, "notes", "list.txt"), []byte("Buy oranges.\n"), 0o600),
		os.WriteFile(file, []byte(configuration), 0o600))
	if err != nil {
		return err
	}
	fmt.Printf("%-6s %10s %10s %10s %10s\n", "", "import", "install", "call", "total")
	for _, name := range []string{"cold", "warm"} {
		if err := os.RemoveAll(filepath.Join(home, "ambit.lock")); err != nil {
			return err
		}
		u := user{home: home}
		u.do("import", "", ambit, "import", file, "-o", "desk.json", "--force")
		u.do("install", "", ambit, "install", "desk.json", "--client", "cursor", "--yes", "--force")
		u.do("call", "list.txt", ambit, "run", "desk")
		if u.err != nil {
			return u.err
		}
		fmt.Printf("%-6s %8.1f s %8.1f s %8.1f s %8.1f s\n", name, u.took[0], u.took[1], u.took[2],
			u.took[0]+u.took[1]+u.took[2])
	}
	return nil
}

// user runs commands one after the other, until the first error.
type user struct {
	home string
	took []float64
	err  error
}

// do runs a command and records how long it took. If the parameter answer is not empty, the command is an MCP server.
// In that case, the method calls the server's tool and checks that the result contains this answer.
func (u *user) do(step, answer string, argv ...string) {
	if u.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = u.home, 10*time.Second
	cmd.Env = append(os.Environ(), "HOME="+u.home, "AMBIT_HOME=", "NPM_CONFIG_CACHE="+filepath.Join(u.home, ".npm"))
	begin := time.Now()
	var out string
	if answer == "" {
		text, err := cmd.CombinedOutput()
		out, u.err = string(text), err
	} else {
		out, u.err = call(cmd, filepath.Join(u.home, "notes"))
	}
	u.took = append(u.took, time.Since(begin).Seconds())
	if u.err == nil && !strings.Contains(out, answer) {
		u.err = errors.New("the answer does not contain " + answer)
	}
	if u.err != nil {
		u.err = fmt.Errorf("%s: %w\n%s", step, u.err, out)
	}
}

// call starts an MCP server, calls list_directory as a client does, and stops the server.
func call(cmd *exec.Cmd, folder string) (string, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	arguments, err := json.Marshal(map[string]string{"path": folder})
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_directory","arguments":%s}}
`, arguments)
	if err != nil {
		return "", err
	}
	lines, answer := bufio.NewScanner(out), ""
	lines.Buffer(nil, 1<<20)
	for answer == "" && lines.Scan() {
		if strings.Contains(lines.Text(), `"id":2`) {
			answer = lines.Text()
		}
	}
	return answer, errors.Join(lines.Err(), in.Close(), cmd.Wait())
}

// remove removes a home, including the read-only folders of its packages.
func remove(home string) {
	_ = filepath.WalkDir(home, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(home); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}
