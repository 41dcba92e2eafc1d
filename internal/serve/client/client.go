// Package client adds agents to the MCP clients that people use, and removes them again.
//
// Every client gets the same entry in its configuration file. The entry is the command "ambit run NAME", with the
// absolute path of ambit. It contains no secret, and the gateway stays the only way to the agent's tools. The clients
// differ in the location of the file, the key of the MCP servers, and the accepted syntax. [Clients] describes the
// differences.
//
// The configuration file belongs to the user. A [Change] is the smallest edit that adds or removes one entry. It
// preserves comments, order, indentation, line endings, a byte order mark, the file's mode, and a symbolic link to
// the file. The edit is planned in memory and shown to the user. Then the file is backed up, replaced atomically, and
// read again. If another program changes the file before it is replaced, the edit is planned again. The other
// program's changes are not lost. An invalid or read-only file is not changed.
//
// A diff shows only lines that ambit adds or wrote earlier. The other lines belong to the user and may contain
// secrets.
//
// The [Ledger] records every entry that ambit wrote. If the file has not changed since then, removing the agent
// restores the original file byte for byte. Otherwise, ambit removes only its own entry. If someone has changed the
// entry, ambit does not remove it.
package client

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// System describes the machine on which the clients are installed.
type System struct {
	// OS is the operating system, as in runtime.GOOS.
	OS string
	// Home is the user's home folder.
	Home string
	// Ambit is ambit's own home folder.
	Ambit  string
	Getenv func(string) string
}

// Here returns a System that describes this machine. The parameter is ambit's home folder.
func Here(ambitHome string) (System, error) {
	home, err := os.UserHomeDir()
	return System{OS: runtime.GOOS, Home: home, Ambit: ambitHome, Getenv: os.Getenv}, err
}

// folderFrom returns the folder in the given environment variable. If the variable does not contain an absolute path,
// folderFrom returns the fallback folder in the user's home.
func (s System) folderFrom(variable string, fallback ...string) string {
	if dir := s.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return s.home(fallback...)
}

func (s System) home(parts ...string) string {
	return filepath.Join(append([]string{s.Home}, parts...)...)
}

// configFolder returns the folder in which desktop applications store their settings.
func (s System) configFolder() string {
	switch s.OS {
	case "darwin":
		return s.home("Library", "Application Support")
	case "windows":
		return s.folderFrom("APPDATA", "AppData", "Roaming")
	}
	return s.folderFrom("XDG_CONFIG_HOME", ".config")
}

// Client is a program into which agents can be installed.
type Client struct {
	Name, Title string
	// After is a message that tells the user how to make the client reload its file.
	After string
	// Binary is the name of the client's program on PATH, or empty.
	Binary string
	// Family is the client's name in the compatibility hints of manifests.
	Family string

	editor editor
	plain  bool // an entry's name can contain only letters, digits, - and _
	// place returns the path of the file that contains the agent's entry. The second result is the path of a folder.
	// If this folder exists, the client is assumed to be installed.
	place func(s System, name string) (file, sign string)
}

// Clients lists all supported clients, in the same order as package findagent.
var Clients = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", After: "quit Claude Desktop and start it again", Family: "claude",
		editor: jsonFile{key: "mcpServers", reads: standard},
		place:  claudeDesktop,
	},
	{
		Name: "claude-code", Title: "Claude Code", After: "start a new session; to check, run: claude mcp list",
		Binary: "claude", Family: "claude", editor: jsonFile{key: "mcpServers", reads: standard, typed: true}, plain: true,
		place: func(s System, _ string) (string, string) {
			dir := s.folderFrom("CLAUDE_CONFIG_DIR")
			return filepath.Join(dir, ".claude.json"), s.folderFrom("CLAUDE_CONFIG_DIR", ".claude")
		},
	},
	{
		Name: "chatgpt", Title: "ChatGPT and Codex", After: "restart the app; to check it, run: codex mcp list",
		Binary: "codex", Family: "chatgpt", editor: tomlFile{table: "mcp_servers"},
		place: func(s System, _ string) (string, string) {
			dir := s.folderFrom("CODEX_HOME", ".codex")
			return filepath.Join(dir, "config.toml"), dir
		},
	},
	{
		Name: "cursor", Title: "Cursor", After: "turn the agent on in Cursor's settings, under MCP", Family: "cursor",
		editor: jsonFile{key: "mcpServers", reads: standard},
		place: func(s System, _ string) (string, string) {
			return s.home(".cursor", "mcp.json"), s.home(".cursor")
		},
	},
	{
		Name: "vscode", Title: "VS Code", After: "start the agent in VS Code's list of MCP servers", Family: "vscode",
		editor: jsonFile{key: "servers", reads: trailing, typed: true},
		place: func(s System, _ string) (string, string) {
			dir := filepath.Join(s.configFolder(), "Code", "User")
			return filepath.Join(dir, "mcp.json"), dir
		},
	},
	{
		Name: "gemini-cli", Title: "Gemini CLI", After: "start a new session; to check, run: gemini mcp list",
		Binary: "gemini", Family: "gemini", editor: jsonFile{key: "mcpServers", reads: comments},
		place: func(s System, _ string) (string, string) {
			dir := filepath.Join(s.folderFrom("GEMINI_CLI_HOME"), ".gemini")
			return filepath.Join(dir, "settings.json"), dir
		},
	},
	{
		Name: "windsurf", Title: "Windsurf", After: "refresh the list of MCP servers in Windsurf", Family: "windsurf",
		editor: jsonFile{key: "mcpServers", reads: comments},
		place:  windsurf,
	},
	{
		Name: "cli", Title: "the command line", After: "run the file by its path, or add its folder to PATH",
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

// Web is the name of the entry in [Clients] that represents all web clients. A web client can only connect to a URL.
const Web = "web"

// Names returns the names of all clients.
func Names() []string {
	names := make([]string, len(Clients))
	for i, c := range Clients {
		names[i] = c.Name
	}
	return names
}

// Named returns the client with this name, or nil.
func Named(name string) *Client {
	if i := slices.Index(Names(), name); i >= 0 {
		return Clients[i]
	}
	return nil
}

// claudeDesktop returns the path of Claude Desktop's file. On Windows, the MSIX version of the app stores its settings
// in the folder of its package.
func claudeDesktop(s System, _ string) (file, sign string) {
	dir := filepath.Join(s.configFolder(), "Claude")
	if s.OS == "windows" {
		packages := filepath.Join(s.folderFrom("LOCALAPPDATA", "AppData", "Local"), "Packages")
		entries, _ := os.ReadDir(packages) // if this folder does not exist, the MSIX version is not installed
		for _, e := range entries {
			own := filepath.Join(packages, e.Name(), "LocalCache", "Roaming", "Claude")
			if strings.HasPrefix(e.Name(), "Claude_") && isFolder(own) {
				return filepath.Join(own, "claude_desktop_config.json"), own
			}
		}
	}
	return filepath.Join(dir, "claude_desktop_config.json"), dir
}

// windsurf returns the path of Windsurf's file. In 2026, Windsurf was renamed to Devin Desktop and moved to a different
// folder. If the new folder exists, it is used.
func windsurf(s System, _ string) (file, sign string) {
	devin := filepath.Join(s.folderFrom("XDG_CONFIG_HOME", ".config"), "devin")
	if s.OS == "windows" {
		devin = filepath.Join(s.configFolder(), "devin")
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

// File returns the file that contains the client's entry for the agent. The second result reports whether the client
// seems to be installed. For web clients, File returns "" and false.
func (c *Client) File(s System, name string) (file string, found bool) {
	if c.place == nil {
		return "", false
	}
	file, sign := c.place(s, name)
	_, err := os.Stat(file)
	return file, err == nil || isFolder(sign)
}

// Key returns the name of the agent's entry in the client's file.
func (c *Client) Key(name string) string {
	if !c.plain {
		return name
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(bareKey, r) {
			return r
		}
		return '-'
	}, name)
}

// Entry is the command that a client starts.
type Entry struct {
	Command string
	Args    []string
	// Home is the value of AMBIT_HOME for the command. If Home is empty, the entry does not set AMBIT_HOME.
	Home string
}

// NewEntry returns the entry for "ambit run NAME". The first parameter is the path of ambit.
func NewEntry(ambit, name, home string) Entry {
	return Entry{Command: ambit, Args: []string{"run", name}, Home: home}
}

// homeVariable is the only environment variable that an entry sets.
const homeVariable = "AMBIT_HOME"

// value returns the entry as a parsed JSON or TOML value. A typed value also has the member "type": "stdio".
func (e Entry) value(typed bool) map[string]any {
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
