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
	return filepath.Join(append([]string{s.Home}, fallback...)...)
}

// expand replaces the first segment of a path in [Clients]. A segment such as $NAME~.folder stands for the path in the
// environment variable NAME. If the variable is not set, the segment stands for .folder in the user's home.
func (s System) expand(path, name string) string {
	first, rest, _ := strings.Cut(path, "/")
	variable, fallback, _ := strings.Cut(strings.TrimPrefix(first, "$"), "~")
	switch {
	case first == "~":
		first = s.Home
	case first == "{ambit}":
		first = s.Ambit
	case first == "{xdg}":
		first = s.folderFrom("XDG_CONFIG_HOME", ".config")
	case first == "{local}":
		first = s.folderFrom("LOCALAPPDATA", "AppData", "Local")
	case first == "{config}" && s.OS == "darwin":
		first = filepath.Join(s.Home, "Library", "Application Support")
	case first == "{config}" && s.OS == "windows":
		first = s.folderFrom("APPDATA", "AppData", "Roaming")
	case first == "{config}":
		first = s.folderFrom("XDG_CONFIG_HOME", ".config")
	default:
		first = s.folderFrom(variable, fallback)
	}
	return filepath.Join(first, filepath.FromSlash(strings.ReplaceAll(rest, "{name}", name)))
}

// Client is a program into which agents can be installed.
type Client struct {
	Name, Title string
	// Also is another name of the client, or empty.
	Also string
	// After is the instruction that makes the client reload its file.
	After string
	// Binary is the name of the client's program on PATH, or empty.
	Binary string
	// Family is the client's name in the compatibility hints of manifests.
	Family string

	editor editor
	plain  bool // an entry's name can contain only letters, digits, - and _
	// The field files lists possible paths of the file that contains the agent's entry. On Windows, the field windows is
	// used instead, unless it is nil. The first path whose folder exists is used, or else the last path. In a path, *
	// matches any part of a folder's name, and {name} stands for the agent's name. [System.expand] describes the first
	// segment.
	files, windows []string
	// folder is a folder that exists only if the client is installed. The default is the folder of the file.
	folder string
}

// The shapes of entries. Most clients use the usual shape.
var (
	usual  = shape{{"command", command}, {"args", args}, {"env", env}}
	typed  = append(shape{{"type", "stdio"}}, usual...)
	inList = shape{{"type", "local"}, {"command", commandLine}, {"environment", env}, {"enabled", true}}
	allow  = append(append(shape{{"type", "local"}}, usual...), field{"tools", []string{"*"}})
	goose  = shape{
		{"enabled", true},
		{"type", "stdio"},
		{"name", name},
		{"description", "an agent of ambit"},
		{"cmd", command},
		{"args", args},
		{"envs", env},
		{"timeout", 300},
	}
)

// Clients lists all supported clients. The first nine are in the same order as in package findagent.
var Clients = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", Family: "claude",
		After:  "quit Claude Desktop and start it again",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		files:  []string{"{config}/Claude/claude_desktop_config.json"},
		// The MSIX version of the app stores its settings in the folder of its package.
		windows: []string{
			"{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
			"{config}/Claude/claude_desktop_config.json",
		},
	},
	{
		Name: "claude-code", Title: "Claude Code", Binary: "claude", Family: "claude", plain: true,
		After:  "start a new session; to check, run: claude mcp list",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: typed},
		files:  []string{"$CLAUDE_CONFIG_DIR~/.claude.json"}, folder: "$CLAUDE_CONFIG_DIR~.claude",
	},
	{
		Name: "chatgpt", Also: "codex", Title: "ChatGPT and Codex", Binary: "codex", Family: "chatgpt",
		After:  "restart the app; to check it, run: codex mcp list",
		editor: tomlFile{table: "mcp_servers", shape: usual},
		files:  []string{"$CODEX_HOME~.codex/config.toml"},
	},
	{
		Name: "cursor", Title: "Cursor", Family: "cursor",
		After:  "turn the agent on in Cursor's settings, under MCP",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		files:  []string{"~/.cursor/mcp.json"},
	},
	{
		Name: "vscode", Title: "VS Code", Family: "vscode",
		After:  "start the agent in VS Code's list of MCP servers",
		editor: jsonFile{key: "servers", reads: trailing, shape: typed},
		files:  []string{"{config}/Code/User/mcp.json"},
	},
	{
		Name: "gemini-cli", Title: "Gemini CLI", Binary: "gemini", Family: "gemini",
		After:  "start a new session; to check, run: gemini mcp list",
		editor: jsonFile{key: "mcpServers", reads: comments, shape: usual},
		files:  []string{"$GEMINI_CLI_HOME~/.gemini/settings.json"},
	},
	{
		Name: "windsurf", Title: "Windsurf", Family: "windsurf",
		After:  "refresh the list of MCP servers in Windsurf",
		editor: jsonFile{key: "mcpServers", reads: comments, shape: usual},
		// In 2026, Windsurf was renamed to Devin Desktop and moved to a different folder.
		files:   []string{"{xdg}/devin/mcp_config.json", "~/.codeium/windsurf/mcp_config.json"},
		windows: []string{"{config}/devin/mcp_config.json", "~/.codeium/windsurf/mcp_config.json"},
	},
	{
		Name: "cli", Title: "the command line",
		After:  "run the file by its path, or add its folder to PATH",
		editor: launcher{},
		files:  []string{"{ambit}/bin/{name}"}, windows: []string{"{ambit}/bin/{name}.cmd"}, folder: "{ambit}",
	},
	{Name: Web, Title: "web clients"},
	{
		Name: "opencode", Title: "opencode", Binary: "opencode",
		After:  "start a new session; to check, run: opencode mcp list",
		editor: jsonFile{key: "mcp", reads: trailing, shape: inList},
		files:  []string{"{xdg}/opencode/opencode.json"},
	},
	{
		Name: "qwen-code", Title: "Qwen Code", Binary: "qwen",
		After:  "start a new session; to check, run: qwen mcp list",
		editor: jsonFile{key: "mcpServers", reads: comments, shape: usual},
		files:  []string{"~/.qwen/settings.json"},
	},
	{
		Name: "copilot-cli", Title: "GitHub Copilot CLI", Binary: "copilot",
		After:  "start a new session; to check, run: copilot mcp list",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: allow},
		files:  []string{"$COPILOT_HOME~.copilot/mcp-config.json"},
	},
	{
		Name: "zed", Title: "Zed",
		After:  "open Zed's agent settings, and check that the agent's dot is green",
		editor: jsonFile{key: "context_servers", reads: trailing, shape: usual},
		files:  []string{"{xdg}/zed/settings.json"}, windows: []string{"{config}/Zed/settings.json"},
	},
	{
		Name: "cline", Title: "Cline in VS Code",
		After:  "open Cline's list of MCP servers in VS Code",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		files:  []string{"{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
	},
	{
		Name: "roo", Title: "Roo Code in VS Code",
		After:  "open Roo Code's list of MCP servers in VS Code",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		files:  []string{"{config}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
	},
	{
		Name: "continue", Title: "Continue",
		After:  "reload the window of your editor; Continue offers MCP tools in agent mode",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		// The client Continue reads each JSON file in this folder, so ambit does not change Continue's own YAML file.
		files: []string{"~/.continue/mcpServers/ambit.json"}, folder: "~/.continue",
	},
	{
		Name: "goose", Title: "goose", Binary: "goose", plain: true,
		After:  "start a new session",
		editor: yamlFile{key: "extensions", shape: goose},
		files:  []string{"{xdg}/goose/config.yaml"}, windows: []string{"{config}/Block/goose/config/config.yaml"},
	},
	{
		Name: "kiro", Title: "Kiro",
		After:  "open Kiro's list of MCP servers",
		editor: jsonFile{key: "mcpServers", reads: standard, shape: usual},
		files:  []string{"~/.kiro/settings/mcp.json"}, folder: "~/.kiro",
	},
}

// Web is the name of the entry in [Clients] that represents all web clients. A web client can only connect to a URL.
const Web = "web"

// Names returns the names of all clients.
func Names() []string {
	var names []string
	for _, c := range Clients {
		names = append(names, c.Name)
		if c.Also != "" {
			names = append(names, c.Also)
		}
	}
	return names
}

// Named returns the client with this name, or nil.
func Named(name string) *Client {
	for _, c := range Clients {
		if name != "" && (c.Name == name || c.Also == name) {
			return c
		}
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// place returns the path of the file that contains the agent's entry, and the path of a folder. If this folder exists,
// the client is assumed to be installed.
func (c *Client) place(s System, name string) (file, folder string) {
	files := c.files
	if s.OS == "windows" && c.windows != nil {
		files = c.windows
	}
	for _, f := range files {
		file = s.expand(f, name)
		if strings.Contains(f, "*") {
			found, _ := filepath.Glob(filepath.Dir(file)) // the patterns in Clients are valid
			if len(found) == 0 {
				continue
			}
			file = filepath.Join(found[0], filepath.Base(file))
		}
		if folder = filepath.Dir(file); isFolder(folder) {
			break
		}
	}
	if c.folder != "" {
		folder = s.expand(c.folder, name)
	}
	return file, folder
}

// File returns the file that contains the client's entry for the agent. The second result reports whether the client
// seems to be installed. For web clients, File returns "" and false.
func (c *Client) File(s System, name string) (file string, found bool) {
	if c.files == nil {
		return "", false
	}
	file, folder := c.place(s, name)
	_, err := os.Stat(file)
	return file, err == nil || isFolder(folder)
}

// Found returns the clients on this machine, except web clients and the command line.
func (s System) Found() (clients []*Client) {
	for _, c := range Clients {
		_, found := c.File(s, "")
		if _, own := c.editor.(launcher); found && !own {
			clients = append(clients, c)
		}
	}
	return clients
}

// Configurations returns the configuration files of the clients on this machine.
func (s System) Configurations() (files []string) {
	for _, c := range s.Found() {
		file, _ := c.File(s, "")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
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
	Name    string // the name of the agent
	Command string
	Args    []string
	// Home is the value of AMBIT_HOME for the command. If Home is empty, the entry does not set AMBIT_HOME.
	Home string
}

// NewEntry returns the entry for "ambit run NAME". The first parameter is the path of ambit.
func NewEntry(ambit, name, home string) Entry {
	return Entry{Name: name, Command: ambit, Args: []string{"run", name}, Home: home}
}

// homeVariable is the only environment variable that an entry sets.
const homeVariable = "AMBIT_HOME"

// shape lists the members of an entry. The value of a field is a [part], or a constant: a string, a bool, an int or a
// list of strings.
type shape []field

type field struct {
	name  string
	value any
}

// part is a part of an [Entry] that is the value of a field.
type part int

const (
	command part = iota
	args
	commandLine // the command and the arguments in one list
	env         // the field is left out if the entry sets no variable
	name        // the name of the agent
)

// of returns the fields of an entry, with their values. A value is a constant, or a map with one environment variable.
func (s shape) of(e Entry) []field {
	var out []field
	for _, f := range s {
		switch f.value {
		case command:
			f.value = e.Command
		case args:
			f.value = e.Args
		case commandLine:
			f.value = append([]string{e.Command}, e.Args...)
		case name:
			f.value = e.Name
		case env:
			if e.Home == "" {
				continue
			}
			f.value = map[string]string{homeVariable: e.Home}
		}
		out = append(out, f)
	}
	return out
}

// value returns the entry as a parsed JSON, TOML or YAML value.
func (s shape) value(e Entry) any {
	m := map[string]any{}
	for _, f := range s.of(e) {
		switch v := f.value.(type) {
		case []string:
			list := make([]any, len(v))
			for i, item := range v {
				list[i] = item
			}
			m[f.name] = list
		case map[string]string:
			m[f.name] = map[string]any{homeVariable: v[homeVariable]}
		default:
			m[f.name] = v
		}
	}
	return m
}
