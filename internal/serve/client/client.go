// Package client puts agents into the MCP clients that people use, and takes
// them out again.
//
// Every client is told the same: start ambit, by its absolute path, with run
// and the agent's NAME. So no secret ever enters a client's file, one shape
// fits all, and the door stays the only way to the agent's tools. What differs
// is a table here: where the file lies on each system, under which key servers
// stand, and what the client can read.
//
// A client's file belongs to its owner. A [Change] is the smallest edit of its
// text that adds or removes one entry: comments, order, indentation, line ends,
// a byte order mark, the file's mode and a link to it all stay. It is planned
// first, so that people see it before anything is written. The file is then
// copied aside, replaced in one step, and read again; a file that changed in
// between is edited anew, never overwritten. A file that cannot be read as what
// it should be, or may not be written, is left alone.
//
// A diff shows only what is added and what ambit itself had written. The lines
// around are somebody else's and may hold secrets.
//
// The [Ledger] remembers what was written. Taking an agent out of a file that
// nobody has touched since restores its bytes; otherwise exactly our entry is
// removed, and only if it is still the one that was written.
package client

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// System is the machine as clients see it.
type System struct {
	// OS is named as in runtime.GOOS.
	OS string
	// Home is the user's home folder, Ambit that of ambit.
	Home, Ambit string
	Getenv      func(string) string
}

// Here is this machine.
func Here(ambit string) (System, error) {
	home, err := os.UserHomeDir()
	return System{OS: runtime.GOOS, Home: home, Ambit: ambit, Getenv: os.Getenv}, err
}

// from is the folder that a variable names, else the given one in the home.
func (s System) from(variable string, otherwise ...string) string {
	if dir := s.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return s.home(otherwise...)
}

func (s System) home(parts ...string) string {
	return filepath.Join(append([]string{s.Home}, parts...)...)
}

// config is where applications of the desktop keep their settings.
func (s System) config() string {
	switch s.OS {
	case "darwin":
		return s.home("Library", "Application Support")
	case "windows":
		return s.from("APPDATA", "AppData", "Roaming")
	}
	return s.from("XDG_CONFIG_HOME", ".config")
}

// Client is a program that agents are installed into.
type Client struct {
	Name, Title string
	// After is what a person does for the client to see the change.
	After string
	// Binary is the client's own program on PATH, empty if it has none.
	Binary string
	// Family is the name that compatibility hints use for it.
	Family string

	editor editor
	// plain says that the client takes only letters, digits, - and _ as names.
	plain bool
	// place is the file, and the folder that shows that the client is here.
	place func(System, string) (file, sign string)
}

// Clients are all of them, in the order in which manifests name them.
var Clients = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", After: "quit Claude Desktop and start it again", Family: "claude",
		editor: jsonFile{key: "mcpServers", reads: standard},
		place:  claudeDesktop,
	},
	{
		Name: "claude-code", Title: "Claude Code", After: "start a new session; claude mcp list shows it", Binary: "claude", Family: "claude",
		editor: jsonFile{key: "mcpServers", reads: standard, typed: true}, plain: true,
		place: func(s System, _ string) (string, string) {
			dir := s.from("CLAUDE_CONFIG_DIR")
			return filepath.Join(dir, ".claude.json"), s.from("CLAUDE_CONFIG_DIR", ".claude")
		},
	},
	{
		Name: "chatgpt", Title: "ChatGPT and Codex", After: "restart the app; codex mcp list shows it", Binary: "codex", Family: "chatgpt",
		editor: tomlFile{table: "mcp_servers"},
		place: func(s System, _ string) (string, string) {
			dir := s.from("CODEX_HOME", ".codex")
			return filepath.Join(dir, "config.toml"), dir
		},
	},
	{
		Name: "cursor", Title: "Cursor", After: "turn it on in Cursor's settings, under MCP", Family: "cursor",
		editor: jsonFile{key: "mcpServers", reads: standard},
		place: func(s System, _ string) (string, string) {
			return s.home(".cursor", "mcp.json"), s.home(".cursor")
		},
	},
	{
		Name: "vscode", Title: "VS Code", After: "start it from the list of MCP servers in VS Code", Family: "vscode",
		editor: jsonFile{key: "servers", reads: trailing, typed: true},
		place: func(s System, _ string) (string, string) {
			dir := filepath.Join(s.config(), "Code", "User")
			return filepath.Join(dir, "mcp.json"), dir
		},
	},
	{
		Name: "gemini-cli", Title: "Gemini CLI", After: "start a new session; gemini mcp list shows it", Binary: "gemini", Family: "gemini",
		editor: jsonFile{key: "mcpServers", reads: comments},
		place: func(s System, _ string) (string, string) {
			dir := filepath.Join(s.from("GEMINI_CLI_HOME"), ".gemini")
			return filepath.Join(dir, "settings.json"), dir
		},
	},
	{
		Name: "windsurf", Title: "Windsurf", After: "refresh the list of MCP servers", Family: "windsurf",
		editor: jsonFile{key: "mcpServers", reads: comments},
		place:  windsurf,
	},
	{
		Name: "cli", Title: "the command line", After: "call it by that path, or add the folder to PATH",
		editor: launcher{},
		place: func(s System, name string) (string, string) {
			if s.OS == "windows" {
				name += ".cmd"
			}
			return filepath.Join(s.Ambit, "bin", name), s.Ambit
		},
	},
	{Name: Web, Title: "web clients"},
}

// Web stands for all clients that can only connect to an address.
const Web = "web"

// Names are the names of all clients.
func Names() []string {
	names := make([]string, len(Clients))
	for i, c := range Clients {
		names[i] = c.Name
	}
	return names
}

// Named is the client of that name, or nil.
func Named(name string) *Client {
	for _, c := range Clients {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// claudeDesktop knows that on Windows the packaged app reads only a copy of
// its folder that lies elsewhere.
func claudeDesktop(s System, _ string) (file, sign string) {
	dir := filepath.Join(s.config(), "Claude")
	if s.OS == "windows" {
		packages := filepath.Join(s.from("LOCALAPPDATA", "AppData", "Local"), "Packages")
		// Glob fails only on a bad pattern, and then finds nothing.
		found, _ := filepath.Glob(filepath.Join(escapeGlob(packages), "Claude_*", "LocalCache", "Roaming", "Claude"))
		if len(found) > 0 {
			dir = found[0]
		}
	}
	return filepath.Join(dir, "claude_desktop_config.json"), dir
}

// escapeGlob keeps a folder's name from being read as a pattern. On Windows
// nothing can be escaped, and only [ is both a sign and allowed in a name.
func escapeGlob(dir string) string {
	if runtime.GOOS == "windows" {
		return strings.ReplaceAll(dir, "[", "?")
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// windsurf has been Devin Desktop since 2026, with a folder of its own. Which
// of the two is there tells which one is used.
func windsurf(s System, _ string) (file, sign string) {
	devin := filepath.Join(s.from("XDG_CONFIG_HOME", ".config"), "devin")
	if s.OS == "windows" {
		devin = filepath.Join(s.config(), "devin")
	}
	if isFolder(devin) {
		return filepath.Join(devin, "mcp_config.json"), devin
	}
	dir := s.home(".codeium", "windsurf")
	return filepath.Join(dir, "mcp_config.json"), dir
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// File is where the client reads of an agent, and whether there is any sign
// that the client is on this machine. Web clients have none.
func (c *Client) File(s System, name string) (file string, found bool) {
	if c.place == nil {
		return "", false
	}
	file, sign := c.place(s, name)
	_, err := os.Stat(file)
	return file, err == nil || isFolder(sign)
}

// Key is the name of an agent in the client's file.
func (c *Client) Key(name string) string {
	if !c.plain {
		return name
	}
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

// Entry is what a client starts.
type Entry struct {
	Command string
	Args    []string
	// Home is AMBIT_HOME for a client that would not know it; empty is the
	// usual one.
	Home string
}

// NewEntry is the entry of an agent: ambit run NAME.
func NewEntry(ambit, name, home string) Entry {
	return Entry{Command: ambit, Args: []string{"run", name}, Home: home}
}

// homeVariable is the one setting that an entry may hold.
const homeVariable = "AMBIT_HOME"

// meaning is the entry as a parsed file holds it.
func (e Entry) meaning(typed bool) map[string]any {
	args := make([]any, len(e.Args))
	for i, a := range e.Args {
		args[i] = a
	}
	m := map[string]any{"command": e.Command, "args": args}
	if typed {
		m["type"] = "stdio"
	}
	if e.Home != "" {
		m["env"] = map[string]any{homeVariable: e.Home}
	}
	return m
}
