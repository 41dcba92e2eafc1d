// Package client installs agents into the MCP clients that people use, and removes them again.
//
// Every client gets the same entry: ambit's absolute path, with run and the agent's NAME. So no
// secret enters a client's file, one form fits all, and the gateway stays the only way to the
// agent's tools. A table here has the differences: the location of the file on each system, the key
// of the servers, and the syntax that the client accepts.
//
// A client's file belongs to its owner. A [Change] is the smallest edit that adds or removes one
// entry: comments, order, indentation, line ends, a byte order mark, the file's mode and a link to
// it all stay. It is planned first, so that people see it before the file is written. Then the file
// is backed up, replaced in one step, and read again. If it changed in between, the edit is planned
// again and overwrites nothing. A file that is invalid or read-only is left unchanged.
//
// A diff shows only the added lines and those that ambit itself had written. The other lines belong
// to the user and may contain secrets.
//
// The [Ledger] records what was written. Removing an agent from an unchanged file restores the
// original bytes. Otherwise only ambit's entry is removed, and only if it is still the one that was
// written.
package client

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// System is the machine as clients see it.
type System struct {
	// OS is a value of runtime.GOOS.
	OS string
	// Home is the user's home folder, Ambit that of ambit.
	Home, Ambit string
	Getenv      func(string) string
}

// Here returns this machine.
func Here(ambit string) (System, error) {
	home, err := os.UserHomeDir()
	return System{OS: runtime.GOOS, Home: home, Ambit: ambit, Getenv: os.Getenv}, err
}

// from returns the folder in an environment variable, or else the given one in the home.
func (s System) from(variable string, otherwise ...string) string {
	if dir := s.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return s.home(otherwise...)
}

func (s System) home(parts ...string) string {
	return filepath.Join(append([]string{s.Home}, parts...)...)
}

// config is the folder for settings of desktop applications.
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
	// After is the step that makes the client see the change.
	After string
	// Binary is the client's own program on PATH, empty if it has none.
	Binary string
	// Family is its name in compatibility hints.
	Family string

	editor editor
	// plain means that names may contain only letters, digits, - and _.
	plain bool
	// place returns the file, and the folder that shows that the client is installed.
	place func(System, string) (file, sign string)
}

// Clients are all clients, in the order of manifests.
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

// Web is the name for clients that can only connect to an address.
const Web = "web"

func Names() []string {
	names := make([]string, len(Clients))
	for i, c := range Clients {
		names[i] = c.Name
	}
	return names
}

// Named returns nil for an unknown name.
func Named(name string) *Client {
	if i := slices.Index(Names(), name); i >= 0 {
		return Clients[i]
	}
	return nil
}

// claudeDesktop handles the packaged app on Windows, which reads a copy of its folder in another
// place.
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

// escapeGlob escapes a folder's name in a pattern. Windows has no escapes, and of the special
// characters only [ may occur in a name.
func escapeGlob(dir string) string {
	if runtime.GOOS == "windows" {
		return strings.ReplaceAll(dir, "[", "?")
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// windsurf has been Devin Desktop since 2026, with its own folder. The existing folder shows which
// one is used.
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

// File returns the file in which the client looks for an agent, and whether the client seems to be
// installed. Web clients have none.
func (c *Client) File(s System, name string) (file string, found bool) {
	if c.place == nil {
		return "", false
	}
	file, sign := c.place(s, name)
	_, err := os.Stat(file)
	return file, err == nil || isFolder(sign)
}

// Key is the agent's name in the client's file.
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

// Entry is the command that a client starts.
type Entry struct {
	Command string
	Args    []string
	// Home is AMBIT_HOME for a client that does not have it; empty means the default.
	Home string
}

// NewEntry returns the entry of an agent: ambit run NAME.
func NewEntry(ambit, name, home string) Entry {
	return Entry{Command: ambit, Args: []string{"run", name}, Home: home}
}

// homeVariable is the only variable that an entry may set.
const homeVariable = "AMBIT_HOME"

// meaning is the entry in a parsed file.
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
