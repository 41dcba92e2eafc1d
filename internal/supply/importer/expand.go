package importer

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// expand replaces the references in a value. A reference to one of the server's own variables becomes the value of that
// variable. A reference with a plain default, such as ${NAME:-value}, becomes the default. Every other reference
// becomes $env:NAME. The second result is false if the value contains no reference.
func (s *server) expand(value string) (text string, found bool) {
	at := 0
	for _, m := range reference.FindAllStringSubmatchIndex(value, -1) {
		name := ""
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 {
				name = value[m[g]:m[g+1]]
				break
			}
		}
		start := m[0]
		if bare := value[m[0]:m[1]]; !strings.HasPrefix(bare, "${") && !strings.HasPrefix(bare, "{env:") && !strings.HasPrefix(bare, "$env:") {
			if !usualName.MatchString(name) {
				continue // the text may be a password, because a password can also begin with $
			}
			start = m[1] - len(strings.TrimLeft(bare, " \t:=/"))
		}
		found = true
		text += value[at:start] + s.valueOf(name, value[m[0]:m[1]])
		at = m[1]
	}
	return text + value[at:], found
}

func (s *server) valueOf(name, ref string) string {
	if value, ok := s.values[name]; ok {
		return value
	}
	_, fallback, ok := strings.Cut(strings.TrimSuffix(ref, "}"), ":-")
	if ok && (fallback == "" && !secretName(name) || fallback != "" && (&builder{}).isPlainSetting(name, fallback)) {
		return fallback
	}
	return "$env:" + variable(name)
}

// reference matches references to variables and inputs in the supported formats.
var reference = regexp.MustCompile(`\$\{(?:env:|input:|user_config\.|config:)?([A-Za-z_][\w.-]*)(?::-?[^}]*)?\}` +
	`|\{env:(\w+)\}|\$env:(\w+)|(?:^|[\s:=/])\$([A-Za-z_]\w*)$|^\{([A-Za-z_]\w*)\}$`)

// ownReference matches a reference in a manifest.
var ownReference = regexp.MustCompile(`\$env:[A-Za-z_]\w*`)

// places are the folders that a configuration refers to.
type places struct {
	// project is the folder of the project that contains the configuration file. plugin is the folder of the plugin
	// that contains the file. output is the folder of the manifest.
	project, plugin, output string
	// cwd is the working folder of a server. It is empty if the server runs in the project's folder.
	cwd string
}

// placesOf returns the folders for a configuration file.
func placesOf(file, output string) (p places, err error) {
	if file, err = filepath.Abs(file); err != nil {
		return p, err
	}
	if p.output, err = filepath.Abs(output); err != nil {
		return p, err
	}
	p.plugin = filepath.Dir(file)
	if base := filepath.Base(p.plugin); base == ".claude-plugin" || base == ".cursor-plugin" {
		p.plugin = filepath.Dir(p.plugin)
	}
	p.project = p.plugin
	for inList(filepath.Base(p.project), clientFolders) {
		p.project = filepath.Dir(p.project)
	}
	return p, nil
}

// clientFolders lists the folders of a project in which clients keep their configuration.
const clientFolders = ".vscode .cursor .gemini .roo .kiro settings .windsurf .devin .codex .zed .continue mcpServers .amazonq .claude .mcp"

// folders replaces the variables for folders in a text.
func (p places) folders(value string) string {
	return folderVariable.ReplaceAllStringFunc(value, func(ref string) string {
		name := strings.Trim(strings.TrimPrefix(ref, "${env:"), "${}%")
		switch {
		case inList(name, "workspaceFolder workspaceRoot CLAUDE_PROJECT_DIR cwd PWD WORKSPACE_FOLDER fileWorkspaceFolder"):
			if p.cwd != "" {
				return filepath.ToSlash(p.project)
			}
			return "."
		case inList(name, "CLAUDE_PLUGIN_ROOT PLUGIN_ROOT CURSOR_PLUGIN_ROOT extensionPath extensionDir"):
			return filepath.ToSlash(p.plugin)
		case inList(name, "workspaceFolderBasename"):
			return filepath.Base(p.project)
		case inList(name, "/ pathSeparator"):
			return "/"
		}
		if home, err := os.UserHomeDir(); err == nil && strings.Contains(ref, "USERPROFILE") {
			return filepath.ToSlash(home)
		}
		return "$env:HOME"
	})
}

var folderVariable = regexp.MustCompile(`\$\{(?:workspaceFolder|workspaceRoot|workspaceFolderBasename|fileWorkspaceFolder|` +
	`CLAUDE_PROJECT_DIR|(?:env:)?PWD|cwd|WORKSPACE_FOLDER|CLAUDE_PLUGIN_ROOT|PLUGIN_ROOT|CURSOR_PLUGIN_ROOT|extensionPath|` +
	`extensionDir|/|pathSeparator|userHome|(?:env:)?HOME|(?:env:)?USERPROFILE)\}|^\$HOME\b|^%USERPROFILE%|^%HOME%`)

// code returns the path of a file with code. The path is absolute, or relative to the folder of the manifest.
func (p places) code(arg string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(arg, "$env:HOME"); ok && err == nil {
		return filepath.ToSlash(home) + rest
	}
	relative := strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || fileName.MatchString(arg) && !filepath.IsAbs(arg)
	if p.output == "" || !relative && !strings.HasPrefix(arg, filepath.ToSlash(p.plugin)+"/") {
		return arg
	}
	from := p.project
	if p.cwd != "" {
		from = p.cwd
	}
	full := arg
	if relative {
		full = filepath.Join(from, filepath.FromSlash(arg))
	}
	if relative && filepath.Join(p.output, filepath.FromSlash(arg)) == full {
		return arg
	}
	if within, err := filepath.Rel(p.output, full); err == nil && filepath.IsLocal(within) {
		return "./" + filepath.ToSlash(within)
	}
	return filepath.ToSlash(full)
}

// data returns the path in an argument if the path leads to data and not to code. A path to data is relative to the
// folder in which the agent runs.
func (p places) data(arg string) string {
	if p.cwd != "" && (arg == "." || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")) {
		return filepath.ToSlash(filepath.Join(p.cwd, filepath.FromSlash(arg)))
	}
	return arg
}

// apply replaces the variables for folders in the settings of a server. It also makes the server's relative paths
// independent of the working folder. If the server cannot run without its working folder, the second result describes
// the problem and its fix.
func (p places) apply(s *server, cwd string) (problem string) {
	if cwd = strings.TrimSpace(cwd); cwd != "" {
		cwd = p.folders(cwd)
		if home, err := os.UserHomeDir(); err == nil {
			if rest, ok := strings.CutPrefix(cwd, "$env:HOME"); ok {
				cwd = home + rest
			} else if rest, ok := strings.CutPrefix(cwd, "~"); ok {
				cwd = home + rest
			}
		}
		switch {
		case strings.ContainsAny(cwd, "$%{"):
			return "the working folder (cwd) refers to a variable: write the path of the folder"
		case !filepath.IsAbs(cwd) && !drive.MatchString(cwd):
			cwd = filepath.Join(p.project, filepath.FromSlash(cwd))
		}
		if cwd != p.project {
			p.cwd = cwd
		}
	}
	s.places = p
	s.command = p.folders(s.command)
	for i := range s.args {
		s.args[i] = p.folders(s.args[i])
	}
	for i := range s.env {
		s.env[i].value = p.data(p.folders(s.env[i].value))
	}
	if strings.ContainsAny(s.command, `/\`) {
		s.command = p.code(s.command)
	}
	for i := 1; i < len(s.args) && inList(base(s.command), "uv npm pnpm yarn bun poetry"); i++ {
		folder := filepath.FromSlash(s.args[i])
		if inList(s.args[i-1], "--directory --project --prefix --dir --cwd -C") && filepath.IsLocal(folder) {
			s.args[i] = filepath.ToSlash(filepath.Join(cmp.Or(p.cwd, p.project), folder))
		} else if !dashed(s.args[i]) && !inList(s.args[i], "run exec dlx x tool") {
			break // the arguments of the server begin here
		}
	}
	if cwd == "" {
		return ""
	}
	folder := filepath.ToSlash(cwd)
	switch name := base(s.command); {
	case name == "uv" && !slices.Contains(s.args, "--directory"):
		s.args = append([]string{"--directory", folder}, s.args...)
	case name == "npm" && !slices.Contains(s.args, "--prefix"):
		s.args = append([]string{"--prefix", folder}, s.args...)
	case name == "pnpm" && !slices.Contains(s.args, "--dir"):
		s.args = append([]string{"--dir", folder}, s.args...)
	case name == "yarn" && !slices.Contains(s.args, "--cwd"):
		s.args = append([]string{"--cwd", folder}, s.args...)
	case name == "poetry":
		s.args = append([]string{"--directory", folder}, s.args...)
	case inList(name, "pdm hatch rye go cargo make"), name == "bun" && !slices.ContainsFunc(s.args, fileName.MatchString),
		strings.HasPrefix(name, "python") && slices.Contains(s.args, "-m"):
		return "the command " + name + " needs its working folder (cwd), which a manifest cannot express: start the server's program by its path"
	}
	return ""
}
