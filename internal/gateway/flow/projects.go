package flow

import (
	slashpath "path"
	"regexp"
	"slices"
	"strings"
)

// A project's README says which commands to run. The functions in this file recognize commands that only run what the
// files of the project already define, such as "make test". The author of these files can change what such a command
// does, so the README gains nothing by asking for it. A person decides once about each project: after one such command
// was approved, or came from the user, files of the project may ask for others.

// These patterns describe a command that runs only what the project defines. A flag or an argument that can name
// another program, package, address or folder is in none of them.
const (
	goalWords = `(?:all|assets|bootstrap|build|check|ci|compile|coverage|deps|dev|docs?|e2e|fmt|format|init|install|integration|lint|` +
		`serve|setup|start|tests?|typecheck|types|unit|watch)`
	goal  = `(?: ` + goalWords + `(?:[:_-]` + goalWords + `)*)`
	flags = `(?: (?:-[vqsx]|-j\d*|-race|-cover|-count=\d+|--|--(?:all|all-features|all-targets|check|ci|coverage|fix|frozen-lockfile|` +
		`no-audit|no-fund|noEmit|quiet|runInBand|silent|verbose|watch|workspace)))`
	part    = `(?:(?:\./)?[\w@][\w./@-]*|\.|\./\.\.\.)`
	message = `(?:"[^"$` + "`" + `\\\n]*"|'[^'\n]*')`
)

var projectStep = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`(?:make|just|task|rake)(?:` + goal + `|` + flags + `)*`,
	`(?:npm|pnpm|yarn|bun)(?: (?:install|ci|i|test|t|start|build|lint)| run` + goal + `)?` + flags + `*`,
	`(?:npx )?(?:jest|vitest|mocha|tsc|eslint|prettier|pytest|ruff check|black|mypy|flake8|gofmt|golangci-lint run)(?:` +
		flags + `| ` + part + `)*`,
	`python3? -m (?:venv \.?` + part + `|(?:pytest|unittest)(?:` + flags + `| ` + part + `)*)`,
	`(?:python3? -m )?pip3? install(?: -r (?:requirements/)?[\w-]+\.txt| (?:-e |--editable )?"?\.(?:\[[\w,]+\])?"?)+`,
	`(?:\.|source) \.?v?env/bin/activate`,
	`go (?:build|test|vet|fmt|mod tidy|mod download)(?:` + flags + `| -run \w+| ` + part + `)*`,
	`cargo (?:build|test|check|fmt|clippy)` + flags + `*`,
	`(?:mvn|\./mvnw|gradle|\./gradlew)(?: (?:test|compile|package|verify|build|check|assemble))+`,
	`dotnet (?:build|test|restore)|(?:bundle|composer|poetry) install|uv sync`,
	`git (?:status|diff|log)|git add(?: ` + part + `)+|git commit(?: -s| -a| --signoff)* -m ` + message,
	`mkdir (?:-p )?` + part,
}, `|`) + `)$`)

var (
	changesFolder = regexp.MustCompile(`^cd (/?[\w@.-]+(?:/[\w@.-]+)*)/?$`)
	copiesExample = regexp.MustCompile(`^cp ([\w.-]+)\.(?:example|sample|template|dist) ([\w.-]+)$`)
)

// folderNames contains the names of arguments for the folder in which a tool runs a command.
var folderNames = wordSet(`cwd dir directory folder workdir working`)

// projectOf returns the folder of a command that only runs what the files in this folder define, or "".
func projectOf(leaves []leaf, command *leaf) (folder string) {
	for i := range leaves {
		switch l := &leaves[i]; {
		case l == command, l.name == "description", digits(l.value) == len(l.value):
		case hasPart(l.name, folderNames) && folder == "":
			folder = string(l.value)
		default: // for example a variable of the environment
			return ""
		}
	}
	for step := range strings.SplitSeq(string(command.value), " && ") {
		step = strings.TrimSpace(step)
		if slices.Contains(strings.FieldsFunc(step, func(r rune) bool { return r == '/' || r == ' ' }), "..") {
			return ""
		}
		if m := changesFolder.FindStringSubmatch(step); m != nil {
			if folder = slashpath.Join(folder, m[1]); m[1][0] == '/' {
				folder = m[1]
			}
			continue
		}
		m := copiesExample.FindStringSubmatch(step)
		if !projectStep.MatchString(step) && (m == nil || m[1] != m[2]) {
			return ""
		}
	}
	if !strings.HasPrefix(folder, "/") || slashpath.Clean(folder) != strings.TrimSuffix(folder, "/") || folder == "/" {
		return ""
	}
	return slashpath.Clean(folder)
}

// worksIn records that the user or a person wants to run the commands of a project.
func (s *Session) worksIn(leaves []leaf) {
	for i := range leaves {
		if l := &leaves[i]; l.role == code {
			if folder := projectOf(leaves, l); folder != "" {
				s.trust(&s.approved, 0, introductionKey("a project", []byte(folder)))
			}
		}
	}
}

// fileOf returns the absolute path of the file that a tool reads, or "" if it does not read one file of this machine.
func (t *Tool) fileOf(leaves []leaf) (name string) {
	for i := range leaves {
		if l := &leaves[i]; l.role == path {
			if name != "" {
				return ""
			}
			name = string(l.value)
		}
	}
	if t.Effect || t.fetching || len(name) > maxPath || !slashpath.IsAbs(name) || slashpath.Clean(name) != name {
		return ""
	}
	return name
}

// maxPath is the maximum length of a path that a source remembers.
const maxPath = 200
