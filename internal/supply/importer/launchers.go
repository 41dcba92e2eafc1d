package importer

import (
	"path"
	"slices"
	"strings"
)

// family is a group of launchers, which are programs that run other programs. The launchers of a family have similar
// options. An option that the family does not list is treated as unknown.
type family struct {
	programs string
	// subcommands lists the subcommands, separated by commas. The program or package to run comes after the subcommand.
	// If bare is true, there is no subcommand, and the first word is the program or package. If bare is
	// false, a command without a subcommand can only run a file.
	subcommands string
	bare        bool
	// Each of these fields lists options. The options in the switches field have no value. All other options have a
	// value. For an option in the packages field, the value is a package. For an option in the modules field, the value
	// is the module to run.
	switches, values, packages, modules string
	// container is true if the launchers have options that set environment variables. otherContext is true if the
	// launchers run a program as a different user or in a different environment.
	container, otherContext bool
	// runsFile is true if the program to run is a file.
	runsFile bool
}

const (
	nodeSwitches = "-y --yes --no -q --quiet -s --silent --verbose --no-install --offline --prefer-offline " +
		"--prefer-online --ignore-scripts --bun"
	nodeValues   = "--registry --cache --userconfig --loglevel --prefix --dir --cwd"
	nodePackages = "-p --package"
	uvSwitches   = "-q --quiet -v --verbose -n --no-cache --isolated --offline --refresh -U --upgrade --frozen " +
		"--locked --no-sync --no-project --no-dev --no-config --no-env-file --native-tls --managed-python --exact " +
		"--active -s --script"
	uvValues = "--index --index-url --default-index --extra-index-url --python -p --with --with-editable " +
		"--with-requirements --cache-dir --directory --project --env-file --extra --group"
	uvPackages  = "--from --spec"
	runSwitches = "-i -t -d -q -P --interactive --tty --detach --quiet --rm --init --privileged --read-only " +
		"--publish-all --no-healthcheck"
	runValues = "-v --volume --mount --tmpfs -p --publish --expose -m --memory --memory-swap --shm-size --cpus " +
		"--network --net --name -h --hostname --add-host --dns --platform -w --workdir --entrypoint -l --label --env-file " +
		"--pull --restart --gpus --runtime --ipc --pid --userns --cap-add --cap-drop --security-opt --ulimit --pids-limit " +
		"--stop-timeout --device --context"
	denoSwitches = "-A --allow-all -N --allow-net -R --allow-read -W --allow-write -E --allow-env -S --allow-sys " +
		"--allow-run --allow-ffi --allow-import -q --quiet --no-check --no-lock --no-prompt --no-remote --no-npm " +
		"--cached-only --unstable"
	nodeJSOptions = "--no-warnings --no-deprecation --trace-warnings --enable-source-maps --experimental-strip-types " +
		"--experimental-transform-types --experimental-vm-modules --experimental-modules " +
		"--experimental-specifier-resolution --use-system-ca --preserve-symlinks"
)

var families = []family{
	{programs: "npx bunx pnpx", bare: true, switches: nodeSwitches, values: nodeValues, packages: nodePackages},
	{
		programs: "npm pnpm yarn", subcommands: "exec,dlx,x,run,run-script", switches: nodeSwitches, values: nodeValues,
		packages: nodePackages,
	},
	{programs: "bun", subcommands: "x,run", switches: nodeSwitches, values: nodeValues, runsFile: true},
	{programs: "uvx", bare: true, switches: uvSwitches, values: uvValues, packages: uvPackages},
	{
		programs: "uv pipx", subcommands: "run,tool run", switches: uvSwitches, values: uvValues, packages: uvPackages,
		modules: "-m --module",
	},
	{programs: "poetry pdm hatch rye", subcommands: "run"},
	{
		programs: "docker podman nerdctl", subcommands: "run,container run", switches: runSwitches, values: runValues,
		container: true, otherContext: true,
	},
	{
		programs: "node tsx ts-node ruby perl php", bare: true, switches: nodeJSOptions,
		values: "-r --require --import --loader --experimental-loader", runsFile: true,
	},
	{programs: "deno", subcommands: "run", switches: denoSwitches, values: "--config --import-map", runsFile: true},
	{
		programs: "python py", bare: true, switches: "-u -B -I -E -s -S -O -OO -P -q -b -v", values: "-W -X", modules: "-m",
		runsFile: true,
	},
	{programs: "java", switches: "-ea -server", values: "-cp -classpath --class-path", modules: "-jar"},
	{
		programs: "sudo doas", bare: true, switches: "-E -H -n -S -A -b -k --preserve-env --set-home --non-interactive",
		values: "-g --group", otherContext: true,
	},
	// The options of these programs are unknown.
	{programs: "env nice nohup timeout time xargs stdbuf setsid chroot su runuser ssh wsl dotenv doppler infisical op " +
		"mise direnv conda go cargo dotnet flatpak snap firejail bwrap systemd-run", otherContext: true},
}

// shells lists programs that run arbitrary command lines, and sshpass, which takes a password.
var shells = strings.Fields("sh bash zsh dash ash ksh csh tcsh fish busybox cmd powershell pwsh sshpass")

func familyOf(command string) *family {
	name := base(command)
	for i, f := range families {
		// python3.12 is in the same family as python.
		if inList(name, f.programs) || inList(strings.TrimRight(name, "0123456789."), f.programs) {
			return &families[i]
		}
	}
	return nil
}

// base returns the name of a command in lower case, without folder and extension.
func base(command string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// inList reports whether a word is in a space-separated list of words.
func inList(word, list string) bool { return slices.Contains(strings.Fields(list), word) }

// matchSubcommand compares words with the subcommands of the family. The first result reports whether the words are a
// complete subcommand. The second result reports whether they are the beginning of a longer subcommand.
func (f *family) matchSubcommand(words string) (all, some bool) {
	for known := range strings.SplitSeq(f.subcommands, ",") {
		all = all || known == words
		some = some || strings.HasPrefix(known, words+" ")
	}
	return all, some
}

// isCluster reports whether an option combines several one-letter switches, such as -it.
func (f *family) isCluster(arg string) bool {
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
