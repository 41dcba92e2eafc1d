package pack

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// gitRepository creates a git repository with the given files and returns its URL.
func gitRepository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "--message=x"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v %s", args[0], err, out)
		}
	}
	return "git+file://" + dir
}

// A dependency from a git repository must not run code. The dependency in this test tries to run code.
// Its .npmrc sets the program that npm runs as git. It also depends on a second repository, for which
// npm would run that program. The test also covers versions of npm that do not support --allow-git.
func TestHostileNPM(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("this test starts shell scripts as programs, which Windows cannot do")
	}
	npm, err := exec.LookPath("npm")
	check(t, err)
	ran := filepath.Join(t.TempDir(), "ran")
	address := gitRepository(t, map[string]string{
		"package.json": `{"name":"hostile","version":"1.0.0","scripts":{"prepare":"touch '` + ran + `'"},"devDependencies":{"x":"git+file:///nonexistent"}}`,
		".npmrc":       "git=./x\n",
		"x":            "#!/bin/sh\nenv >> '" + ran + "'\nexit 1\n",
	})
	name := scope + "/hostile"
	registry.publish(map[string]any{"name": name, "version": "1.0.0", "bin": "x.js", "dependencies": map[string]string{"hostile": address}}, map[string]string{"x.js": "1"})
	path := os.Getenv("PATH")
	for what, drop := range map[string]string{"npm": "", "npm without --allow-git": "--allow-git=none"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			wrapper := "#!/usr/bin/env node\nprocess.exit(require('child_process').spawnSync('" + npm + "', process.argv.slice(2).filter(a => a !== '" + drop + "'), {stdio: 'inherit'}).status)\n"
			check(t, os.WriteFile(filepath.Join(dir, "npm"), []byte(wrapper), 0o700))
			t.Setenv("PATH", dir+string(os.PathListSeparator)+path)
			_, err := newStore(t).Fetch(context.Background(), Ref{Kind: NPM, Name: name, Version: "1.0.0"}, Want{}, nil)
			if !errors.Is(err, Unsafe) || HintOf(err) == "" {
				t.Errorf("got %v (hint %q)", err, HintOf(err))
			}
			if text, err := os.ReadFile(ran); err == nil {
				t.Errorf("the code of the dependency ran; it saw a secret: %t", strings.Contains(string(text), "AMBIT_TEST_SECRET"))
			}
		})
	}
}

// A dependency that is given as a URL must not run code. The URL points to a git repository, or to a
// source archive that pip would build.
func TestHostileWheel(t *testing.T) {
	needPip(t)
	ran := filepath.Join(t.TempDir(), "ran")
	backend := "import os\nopen(" + quotePython(ran) + ", 'w').write(str(dict(os.environ)))\n"
	project := "[build-system]\nrequires = []\nbuild-backend = 'hostile'\nbackend-path = ['.']\n"
	source := archive(map[string]string{"hostile-1.0/pyproject.toml": project, "hostile-1.0/hostile.py": backend})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(source) }))
	t.Cleanup(server.Close)
	add := pythonIndex(t)
	repository := gitRepository(t, map[string]string{"pyproject.toml": project, "hostile.py": backend})
	repository = strings.Replace(repository, "file://", "file://localhost", 1) // pip requires a host in the URL
	for what, address := range map[string]string{"source": server.URL + "/hostile-1.0.tar.gz", "git": repository} {
		t.Run(what, func(t *testing.T) {
			name := "ambit_" + what
			add("ambit_dep-1.0-py3-none-any.whl", wheel(t, "ambit_dep", "1.0", "Requires-Dist: hostile @ "+address+"\n", map[string]string{}))
			add(name+"-1.0-py3-none-any.whl", wheel(t, name, "1.0", "Requires-Dist: ambit-dep\n", map[string]string{}))
			_, err := newStore(t).Fetch(context.Background(), Ref{Kind: PyPI, Name: name, Version: "1.0"}, Want{}, nil)
			if !errors.Is(err, Unsafe) || HintOf(err) == "" {
				t.Errorf("got %v (hint %q)", err, HintOf(err))
			}
			if text, err := os.ReadFile(ran); err == nil {
				t.Errorf("the code of the dependency ran; it saw a secret: %t", strings.Contains(string(text), "AMBIT_TEST_SECRET"))
			}
		})
	}
}

func quotePython(s string) string { return "'" + strings.ReplaceAll(s, `\`, `\\`) + "'" }

// npm and pip get the variables for their own configuration, but no other secrets.
func TestEnviron(t *testing.T) {
	home := t.TempDir()
	check(t, os.WriteFile(filepath.Join(home, ".npmrc"), []byte("//npm.example.com/:_authToken=${MY_NPM_TOKEN}\nx=${AMBIT_SECRET_X}\ny=${UNSET?}\n"), 0o600))
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("npm_config_userconfig", "")
	t.Setenv("NPM_CONFIG_USERCONFIG", "")
	seen := func() map[string]bool {
		names := map[string]bool{}
		for _, v := range environ("SET=x") {
			name, _, _ := strings.Cut(v, "=")
			names[name] = true
		}
		return names
	}
	yes := []string{"PATH", "HOME", "https_proxy", "NO_PROXY", "npm_config_noproxy", "NPM_CONFIG_REGISTRY", "PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "XDG_CONFIG_HOME", "MY_NPM_TOKEN"}
	no := []string{"AMBIT_SECRET_X", "AMBIT_TEST_SECRET", "AMBIT_HOME", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "GIT_SSH_COMMAND"}
	for _, name := range append(yes, no...) {
		if name != "HOME" && name != "PATH" {
			t.Setenv(name, "x")
		}
	}
	got := seen()
	for _, name := range append(yes, "SET") {
		if !got[name] {
			t.Errorf("%s is missing from the environment", name)
		}
	}
	for _, name := range no {
		if got[name] {
			t.Errorf("the variable %s is in the environment", name)
		}
	}
	check(t, os.Remove(filepath.Join(home, ".npmrc")))
	if seen()["MY_NPM_TOKEN"] {
		t.Error("the environment contains a token to which no settings file refers")
	}
	// The variables in the machine-wide settings file are passed on too. npm also gets the path of this
	// file.
	global := filepath.Join(home, "etc", "npmrc")
	check(t, os.Mkdir(filepath.Dir(global), 0o700))
	check(t, os.WriteFile(global, []byte("//npm.example.com/:_authToken=${MY_NPM_TOKEN}\nx=${AMBIT_SECRET_X}\n"), 0o600))
	for name, value := range map[string]string{"npm_config_globalconfig": global, "NPM_CONFIG_GLOBALCONFIG": global, "npm_config_prefix": home, "PREFIX": home} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := seen(); !got["MY_NPM_TOKEN"] || got["AMBIT_SECRET_X"] || !slices.Contains(environ(), "npm_config_globalconfig="+global) {
				t.Errorf("the environment does not match the machine-wide settings file: %v", environ())
			}
		})
	}
	t.Run("settings file in the prefix of node", func(t *testing.T) {
		bin := filepath.Join(home, "bin")
		check(t, os.Mkdir(bin, 0o700))
		check(t, os.WriteFile(filepath.Join(bin, "node"), nil, 0o700))
		t.Setenv("PATH", bin)
		if got := seen()["MY_NPM_TOKEN"]; got != (runtime.GOOS != "windows") {
			// On Windows, the settings file is not in node's prefix.
			t.Errorf("the token is in the environment: %t", got)
		}
	})
	for _, v := range scriptEnviron(t.TempDir()) {
		if strings.Contains(v, home) || strings.HasPrefix(v, "NPM_CONFIG_") {
			t.Errorf("the environment of install scripts contains %s", v)
		}
	}
}

func TestMachineVariable(t *testing.T) {
	for name, want := range map[string]bool{
		"LD_PRELOAD": true, "NODE_OPTIONS": true, "node_options": true, "Npm_Config_Registry": true, "PYTHONPATH": true, "PIP_INDEX_URL": true, "https_proxy": true,
		"ALL_PROXY": true, "SSL_CERT_FILE": true, "REQUESTS_CA_BUNDLE": true, "CURL_CA_BUNDLE": true, "PATH": true, "HOME": true, "BASH_ENV": true, "ENV": true,
		"PERL5OPT": true, "RUBYOPT": true, "GIT_SSH_COMMAND": true, "JAVA_TOOL_OPTIONS": true, "DOTNET_STARTUP_HOOKS": true, "AMBIT_HOME": true,
		"NODE_ENV": false, "PYTHONUNBUFFERED": false, "API_KEY": false, "HOME_DIR": false, "GITHUB_TOKEN": false, "ENVIRONMENT": false, "PROXY": false,
	} {
		if got := MachineVariable(name); got != want {
			t.Errorf("MachineVariable(%q) = %t, want %t", name, got, want)
		}
	}
}
