package pack

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// variableSet is a set of environment variables, described by exact names, prefixes and suffixes. All of them are in
// upper case.
type variableSet struct{ exact, prefixes, suffixes []string }

// contains reports whether the set contains a variable. Case is ignored, as on Windows.
func (n variableSet) contains(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(n.exact, name) ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(n.suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

var (
	// basicVariables are needed to find programs, temporary files and TLS certificates.
	basicVariables = variableSet{exact: []string{
		"PATH", "LANG", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE",
		"SSL_CERT_DIR",
	}}
	// clientVariables are the variables with which the user configures npm and pip.
	clientVariables = variableSet{
		exact: []string{
			"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS",
			"XDG_CACHE_HOME", "NETRC",
			"LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
			"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		},
		prefixes: []string{"NPM_CONFIG_", "PIP_"},
	}
	// machineVariables are the variables that only the owner of the machine is allowed to set. Some of them make loaders
	// and interpreters run additional code. Others determine where programs are found, or which certificates and proxies
	// network clients use.
	machineVariables = variableSet{
		exact: []string{
			"PATH", "HOME", "USERPROFILE", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH",
			"PERLLIB",
			"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		},
		prefixes: []string{
			"LD_", "DYLD_", "NODE_", "NPM_", "PYTHON", "PIP_", "UV_", "SSL_", "OPENSSL_", "PERL5", "RUBY", "GIT_", "DOTNET_",
			"CORECLR_", "AMBIT_",
		},
		suffixes: []string{"_PROXY"},
	}
	// harmlessVariables are exceptions to machineVariables. Servers often set them, and they do not change which code
	// runs.
	harmlessVariables = variableSet{
		exact: []string{"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE"},
	}
)

// MachineVariable reports whether only the owner of the machine is allowed to set a variable. A server entry that sets
// such a variable could make a package run different code, although the hash of the package is correct. The program
// that starts the sandbox could run different code too, because it gets the same variables.
func MachineVariable(name string) bool {
	return machineVariables.contains(name) && !harmlessVariables.contains(name)
}

// environ returns the environment for npm and pip. The parameter extra lists additional variables as NAME=value.
// Because npm and pip handle untrusted packages, they get only the variables that they need and the variables that
// contain the user's settings.
func environ(extra ...string) []string {
	global := npmGlobal()
	if global != "" { // with --prefix, npm would look for this file below the prefix
		extra = append(extra, "npm_config_globalconfig="+global)
	}
	named := append(npmrcNames(npmrc()), npmrcNames(global)...)
	return append(inherited(func(name string) bool {
		return basicVariables.contains(name) || clientVariables.contains(name) || slices.Contains(named, name) &&
			!strings.HasPrefix(strings.ToUpper(name), "AMBIT_")
	}), extra...)
}

// scriptEnviron returns the environment for install scripts. It contains neither credentials nor the path of a file
// with credentials.
func scriptEnviron(home string) []string {
	return append(inherited(basicVariables.contains), "HOME="+home, "USERPROFILE="+home)
}

// inherited returns the environment variables of this process whose names the callback accepts.
func inherited(wanted func(name string) bool) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !wanted(name)
	})
}

var npmrcName = lazy(`\$\{([A-Za-z_][A-Za-z0-9_]*)\??\}`)

func npmSetting(name string) string {
	return cmp.Or(os.Getenv("npm_config_"+name), os.Getenv("NPM_CONFIG_"+strings.ToUpper(name)))
}

// npmrc returns the path of the user's npm settings file. It returns "" if the user has no home folder.
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

// npmGlobal returns the path of npm's machine-wide settings file, or "" if the path is unknown. It computes the path
// in the same way as npm, because running npm would take half a second.
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

// npmrcNames returns the environment variables that an npm settings file refers to. Registry tokens are often passed
// in such variables.
func npmrcNames(file string) []string {
	text, err := readBounded(file, 1<<20)
	if err != nil {
		return nil // if the file is broken, npm reports the problem
	}
	var found []string
	for _, m := range npmrcName().FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}
