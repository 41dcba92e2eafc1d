package pack

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// names are names of environment variables, in upper case.
type names struct{ exact, prefixes, suffixes []string }

// has ignores case, as Windows does. On other systems no two variables in these lists
// differ only in case.
func (n names) has(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(n.exact, name) ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(n.suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

var (
	// basic locates programs, temporary files and the network's certificates.
	basic = names{exact: []string{
		"PATH", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	}}
	// setup is the user's configuration of npm and pip.
	setup = names{
		exact: []string{
			"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME", "NETRC",
			"LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
			"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		},
		prefixes: []string{"NPM_CONFIG_", "PIP_"},
	}
	// machine belongs to the owner of the machine: it decides which code loaders and
	// interpreters run besides the program, where programs are found, and which
	// certificates and proxies network clients use.
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
	// harmless are often set by servers, and do not change which code runs.
	harmless = names{exact: []string{"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE"}}
)

// MachineVariable reports whether only the owner of the machine may set a variable.
// With such a variable a package of the right hash would run other code, and so would
// the sandbox program, which receives the server's variables too.
func MachineVariable(name string) bool { return machine.has(name) && !harmless.has(name) }

// environ returns the environment of npm and pip, plus the variables in set. These
// clients handle untrusted packages, so they get only what they need to run and what
// the user configured for them.
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

// scriptEnviron returns the environment of install scripts. It contains no credential
// and no path to one.
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

// npmSetting returns an npm setting from the environment.
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

// npmGlobal is the path of npm's machine-wide settings file. It is computed as npm
// does, because asking npm takes half a second.
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

// npmrcNames are the variables that an npm settings file refers to. Registry tokens
// are often passed this way.
func npmrcNames(file string) []string {
	text, err := readBounded(file, 1<<20)
	if err != nil {
		return nil // npm reports what is wrong with it
	}
	var found []string
	for _, m := range npmrcName().FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}
