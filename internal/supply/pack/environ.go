package pack

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// names are names of environment variables, in capitals.
type names struct{ exact, prefixes, suffixes []string }

// has compares as Windows does: elsewhere no two that count differ only in case.
func (n names) has(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(n.exact, name) ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(n.suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

var (
	// basic is how programs, temporary files and the network's certificates are
	// found.
	basic = names{exact: []string{
		"PATH", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	}}
	// setup is where npm and pip find what the user has set up for them.
	setup = names{
		exact: []string{
			"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME", "NETRC",
			"LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
			"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		},
		prefixes: []string{"NPM_CONFIG_", "PIP_"},
	}
	// machine belongs to whose machine it is: what the loader and interpreters run
	// and read besides the program, where programs are found, whom the network's
	// clients trust and by which way they go.
	machine = names{
		exact: []string{
			"PATH", "HOME", "USERPROFILE", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "PERLLIB",
			"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		},
		prefixes: []string{
			"LD_", "DYLD_", "NODE_", "NPM_", "PYTHON", "PIP_", "UV_", "SSL_", "OPENSSL_", "PERL5", "RUBY", "GIT_", "DOTNET_", "CORECLR_", "AMBIT_",
		},
		suffixes: []string{"_PROXY"},
	}
	// harmless are often set by servers, and make nothing run.
	harmless = names{exact: []string{"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE"}}
)

// MachineVariable reports whether a variable is not for strangers to set: a
// package of the right hash would run other code with it, and so would the program
// that contains a server, which has the server's variables too.
func MachineVariable(name string) bool { return machine.has(name) && !harmless.has(name) }

// environ is what npm and pip get to see, with some variables set: how to find what
// they need, and what the user has set up for them. Strangers' packages are in
// their hands, so there is nothing else in it.
func environ(set ...string) []string {
	global := npmGlobal()
	if global != "" { // npm itself looks for it below --prefix
		set = append(set, "npm_config_globalconfig="+global)
	}
	named := append(npmrcNames(npmrc()), npmrcNames(global)...)
	return append(inherited(func(name string) bool {
		return basic.has(name) || setup.has(name) || slices.Contains(named, name) && !strings.HasPrefix(strings.ToUpper(name), "AMBIT_")
	}), set...)
}

// scriptEnviron is what install scripts get to see: nothing that might be a
// credential, nor leads to one.
func scriptEnviron(home string) []string {
	return append(inherited(basic.has), "HOME="+home, "USERPROFILE="+home)
}

func inherited(wanted func(name string) bool) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !wanted(name)
	})
}

var npmrcName = lazy(`\$\{([A-Za-z_][A-Za-z0-9_]*)\??\}`)

// npmSetting is one of npm's settings, as the environment has it.
func npmSetting(name string) string {
	return cmp.Or(os.Getenv("npm_config_"+name), os.Getenv("NPM_CONFIG_"+strings.ToUpper(name)))
}

// npmrc is the user's settings file.
func npmrc() string {
	if file := npmSetting("userconfig"); file != "" {
		return file
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".npmrc")
}

// npmGlobal is the settings file of everybody on this machine, where npm would look
// for it by itself; asking npm takes half a second.
func npmGlobal() string {
	if file := npmSetting("globalconfig"); file != "" {
		return file
	}
	prefix := cmp.Or(npmSetting("prefix"), os.Getenv("PREFIX"))
	if prefix == "" && runtime.GOOS == "windows" {
		prefix = filepath.Join(os.Getenv("APPDATA"), "npm")
	}
	if prefix == "" {
		node, err := lookup("node", "")
		if err == nil {
			node, err = filepath.EvalSymlinks(node)
		}
		if err != nil {
			return ""
		}
		prefix = filepath.Dir(filepath.Dir(node))
	}
	return filepath.Join(prefix, "etc", "npmrc")
}

// npmrcNames are the variables that a file of npm's settings refers to, as tokens of
// registries often are given.
func npmrcNames(file string) []string {
	text, err := readBounded(file, 1<<20)
	if err != nil {
		return nil // npm says what is wrong with it
	}
	var found []string
	for _, m := range npmrcName().FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}
