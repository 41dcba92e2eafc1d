package importer

import (
	"path"
	"slices"
	"strings"
)

// family is a group of programs that run others. Options not listed here are not
// understood.
type family struct {
	programs string
	// words precede what runs, separated by commas. Without them only a file is what
	// runs; with bare the first word is.
	words string
	bare  bool
	// switches are options without a value. values have one. The value of packages is
	// a package; the value of modules is what runs.
	switches, values, packages, modules string
	// container programs set variables by options; others programs run a program as
	// another user or elsewhere.
	container, others bool
}

const (
	nodeSwitches  = "-y --yes --no -q --quiet -s --silent --verbose --no-install --offline --prefer-offline --prefer-online --ignore-scripts --bun"
	nodeValues    = "--registry --cache --userconfig --loglevel --prefix --dir --cwd"
	nodePackages  = "-p --package"
	uvSwitches    = "-q --quiet -v --verbose -n --no-cache --isolated --offline --refresh -U --upgrade --frozen --locked --no-sync --no-project --no-dev --no-config --no-env-file --native-tls --managed-python --exact --active -s --script"
	uvValues      = "--index --index-url --default-index --extra-index-url --python -p --with --with-editable --with-requirements --cache-dir --directory --project --env-file --extra --group"
	uvPackages    = "--from --spec"
	runSwitches   = "-i -t -d -q -P --interactive --tty --detach --quiet --rm --init --privileged --read-only --publish-all --no-healthcheck"
	runValues     = "-v --volume --mount --tmpfs -p --publish --expose -m --memory --memory-swap --shm-size --cpus --network --net --name -h --hostname --add-host --dns --platform -w --workdir --entrypoint -l --label --env-file --pull --restart --gpus --runtime --ipc --pid --userns --cap-add --cap-drop --security-opt --ulimit --pids-limit --stop-timeout --device --context"
	denoSwitches  = "-A --allow-all -N --allow-net -R --allow-read -W --allow-write -E --allow-env -S --allow-sys --allow-run --allow-ffi --allow-import -q --quiet --no-check --no-lock --no-prompt --no-remote --no-npm --cached-only --unstable"
	nodeJSOptions = "--no-warnings --no-deprecation --trace-warnings --enable-source-maps --experimental-strip-types --experimental-transform-types --experimental-vm-modules --experimental-modules --experimental-specifier-resolution --use-system-ca --preserve-symlinks"
)

var families = []family{
	{programs: "npx bunx pnpx", bare: true, switches: nodeSwitches, values: nodeValues, packages: nodePackages},
	{programs: "npm pnpm yarn", words: "exec,dlx,x,run,run-script", switches: nodeSwitches, values: nodeValues, packages: nodePackages},
	{programs: "bun", words: "x,run", switches: nodeSwitches, values: nodeValues},
	{programs: "uvx", bare: true, switches: uvSwitches, values: uvValues, packages: uvPackages},
	{programs: "uv pipx", words: "run,tool run", switches: uvSwitches, values: uvValues, packages: uvPackages, modules: "-m --module"},
	{programs: "poetry pdm hatch rye", words: "run"},
	{programs: "docker podman nerdctl", words: "run,container run", switches: runSwitches, values: runValues, container: true, others: true},
	{programs: "node tsx ts-node ruby perl php", bare: true, switches: nodeJSOptions, values: "-r --require --import --loader --experimental-loader"},
	{programs: "deno", words: "run", switches: denoSwitches, values: "--config --import-map"},
	{programs: "python py", bare: true, switches: "-u -B -I -E -s -S -O -OO -P -q -b -v", values: "-W -X", modules: "-m"},
	{programs: "java", switches: "-ea -server", values: "-cp -classpath --class-path", modules: "-jar"},
	{programs: "sudo doas", bare: true, switches: "-E -H -n -S -A -b -k --preserve-env --set-home --non-interactive", values: "-g --group", others: true},
	// The options of these programs are not understood.
	{programs: "env nice nohup timeout time xargs stdbuf setsid chroot su runuser ssh wsl dotenv doppler infisical op mise direnv conda go cargo dotnet flatpak snap firejail bwrap systemd-run", others: true},
}

// shells run command lines of any content; sshpass gets a password.
var shells = strings.Fields("sh bash zsh dash ash ksh csh tcsh fish busybox cmd powershell pwsh sshpass")

// familyOf returns nil for a program that is not known to run others.
func familyOf(command string) *family {
	name := base(command)
	for i, f := range families {
		// python3.12 is python.
		if inList(name, f.programs) || inList(strings.TrimRight(name, "0123456789."), f.programs) {
			return &families[i]
		}
	}
	return nil
}

// base is a command without its folder and extension.
func base(command string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// inList reports whether a word is in a list separated by spaces.
func inList(word, list string) bool { return slices.Contains(strings.Fields(list), word) }

// launches reports whether words precede what runs: all of them, or only the first.
func (f *family) launches(words string) (all, some bool) {
	for known := range strings.SplitSeq(f.words, ",") {
		all = all || known == words
		some = some || strings.HasPrefix(known, words+" ")
	}
	return all, some
}

// cluster reports whether an option combines switches of one letter, such as -it.
func (f *family) cluster(arg string) bool {
	if len(arg) < 3 || arg[1] == '-' {
		return false
	}
	for _, letter := range arg[1:] {
		if !inList("-"+string(letter), f.switches) {
			return false
		}
	}
	return true
}
