// Package deploy checks the files in the directory deploy. The files must use existing commands and flags.
// They must not run ambit as root or contain secrets. They must define probes. When ambit stops, they must
// give it time to finish its calls.
package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// folder is the path of the directory with the files to check.
const folder = "../../../deploy/"

// flags returns the flags in a command's help.
func flags(t *testing.T, verb string) []string {
	t.Helper()
	var out bytes.Buffer
	if code := cli.Run(t.Context(), []string{verb, "--help"}, strings.NewReader(""), &out, &out); code != 0 {
		t.Fatalf("ambit has no command %s: %s", verb, out.String())
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^  (?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(out.String(), -1) {
		names = append(names, m[1])
	}
	return names
}

// checkCommand checks that a command and its flags exist. The --grace period must end at least 10 seconds
// before the process is killed.
func checkCommand(t *testing.T, where string, argv []string, end time.Duration) {
	t.Helper()
	known := flags(t, argv[0])
	grace := time.Duration(0)
	for i, arg := range argv[1:] {
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		name, value, joined := strings.Cut(arg, "=")
		if !slices.Contains(known, name) {
			t.Errorf("%s: %s has no flag %s", where, argv[0], name)
		}
		if !joined && i+2 < len(argv) {
			value = argv[i+2]
		}
		if name == "--grace" {
			grace, _ = time.ParseDuration(value)
		}
		if strings.HasPrefix(value, "postgres://") && strings.Contains(strings.Split(value, "@")[0][len("postgres://"):], ":") {
			t.Errorf("%s: the URL contains a password", where)
		}
		if strings.HasPrefix(value, "postgres://") {
			if u, err := url.Parse(value); err != nil || u.Query().Get("sslmode") != "verify-full" || !slices.Contains(argv, "--production") {
				t.Errorf("%s: the URL does not verify the certificate of the database: %s %v", where, value, err)
			}
		}
	}
	if end > 0 && (grace == 0 || grace+10*time.Second > end) {
		t.Errorf("%s: --grace is %s, but the process is killed after %s", where, grace, end)
	}
}

// workOf returns the directory that contains the work directories of the agents. It is next to the home.
func workOf(dir string) string { return filepath.Dir(catalog.Work(home.At(dir), "NAME")) }

func TestUnits(t *testing.T) {
	units, err := filepath.Glob(folder + "systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string][]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				settings[key] = append(settings[key], value)
			}
		}
		end, err := time.ParseDuration(strings.Join(settings["TimeoutStopSec"], "") + "s")
		if err != nil {
			t.Error(file, err)
		}
		command := strings.Join(settings["ExecStart"], "")
		if strings.Contains(string(text), "AMBIT_STORE_URL=") {
			_, url, _ := strings.Cut(strings.Join(settings["Environment"], " "), "AMBIT_STORE_URL=")
			command = strings.Replace(command, "${AMBIT_STORE_URL}", strings.Fields(url)[0], 1)
		}
		argv := strings.Fields(command)
		if argv[0] != "/usr/bin/ambit" {
			t.Errorf("%s starts %s, want /usr/bin/ambit", file, argv[0])
		}
		checkCommand(t, file, argv[1:], end)
		for key, want := range map[string]string{"User": "ambit", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "Delegate": "cpu memory pids", "CapabilityBoundingSet": ""} {
			if got := strings.Join(settings[key], ","); settings[key] == nil || got != want {
				t.Errorf("%s: %s is %q, want %q", file, key, got, want)
			}
		}
		_, dir, _ := strings.Cut(strings.Join(settings["Environment"], " "), "AMBIT_HOME=")
		dir, _, _ = strings.Cut(dir, " ")
		for _, path := range []string{dir, workOf(dir)} {
			if kept := strings.Fields(strings.Join(settings["StateDirectory"], " ")); !slices.Contains(kept, strings.TrimPrefix(path, "/var/lib/")) {
				t.Errorf("%s: %s is not writable", file, path)
			}
		}
		// With any of these settings the sandbox does not work.
		for _, key := range []string{"ProtectProc", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "ProcSubset", "MemoryDenyWriteExecute", "PrivateUsers"} {
			if settings[key] != nil {
				t.Errorf("%s: the sandbox does not work with %s", file, key)
			}
		}
		verify(t, file, text)
	}
}

// verify checks a unit with systemd-analyze, if systemd-analyze is installed. It ignores the complaint that ambit is
// not installed.
func verify(t *testing.T, file string, text []byte) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed, so the settings of the unit are not checked")
		return
	}
	unit := filepath.Join(t.TempDir(), filepath.Base(file))
	text = bytes.ReplaceAll(text, []byte("/usr/bin/ambit "), []byte("/bin/true "))
	if err := os.WriteFile(unit, regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAll(text, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), unit) {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}

func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile(folder + "container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	last := string(text[bytes.LastIndex(text, []byte("\nFROM ")):])
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(last)
	if user == nil || user[1] == "0" {
		t.Error("the image runs as root")
	}
	installed := regexp.MustCompile(`apt-get install (.*) \\\n`).FindString(last)
	for _, needed := range []string{"bubblewrap", "ca-certificates", "nodejs", "npm", "python3", "python3-pip"} {
		if !slices.Contains(strings.Fields(installed), needed) {
			t.Errorf("the image lacks %s, which programs or tool servers need", needed)
		}
	}
	dir := regexp.MustCompile(`(?m)^ENV AMBIT_HOME=(\S+)$`).FindStringSubmatch(last)
	if dir == nil || !strings.Contains(last, "--home-dir "+dir[1]+" ") || !strings.Contains(last, "install -d -o ambit -g ambit -m 0700 "+workOf(dir[1])+"\n") {
		t.Errorf("the home %s, or the work directory next to it, does not belong to the user ambit", dir)
	}
	var argv []string
	if command := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(last); command == nil || json.Unmarshal([]byte(command[1]), &argv) != nil {
		t.Fatal("the Containerfile has no valid CMD")
	}
	checkCommand(t, "Containerfile", argv, 0)
	for _, m := range regexp.MustCompile(`(?m)^(?:ENV|ARG) (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if secretlike.Name(m[1]) {
			t.Errorf("the variable %s looks like a secret", m[1])
		}
	}
}

// pod is the checked part of a pod's description.
type pod struct {
	Grace     int   `yaml:"terminationGracePeriodSeconds"`
	Token     *bool `yaml:"automountServiceAccountToken"`
	HostUsers *bool `yaml:"hostUsers"`
	Security  struct {
		NonRoot bool                  `yaml:"runAsNonRoot"`
		User    int                   `yaml:"runAsUser"`
		Seccomp struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Init       []container `yaml:"initContainers"`
	Containers []container
	Volumes    []struct{ Name string }
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Mounts      []mount `yaml:"volumeMounts"`
	Startup     *probe  `yaml:"startupProbe"`
	Live        *probe  `yaml:"livenessProbe"`
	Ready       *probe  `yaml:"readinessProbe"`
	Security    struct {
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Privileged   bool
		Capabilities struct{ Drop, Add []string }
		ProcMount    string `yaml:"procMount"`
	} `yaml:"securityContext"`
}

type mount struct {
	Name     string
	Path     string `yaml:"mountPath"`
	ReadOnly bool   `yaml:"readOnly"`
}

type probe struct {
	HTTP *struct{ Path string } `yaml:"httpGet"`
	Exec *struct{ Command []string }
}

// readPods returns the pods of the manifests, by name.
func readPods(t *testing.T) map[string]pod {
	t.Helper()
	files, err := filepath.Glob(folder + "kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]pod{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for d := yaml.NewDecoder(f); ; {
			var doc struct {
				API      string `yaml:"apiVersion"`
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template struct{ Spec pod } }
			}
			err := d.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if doc.API == "" || doc.Kind == "" || doc.Kind == "Secret" {
				t.Errorf("%s: unexpected object %s %s", file, doc.API, doc.Kind)
			}
			if doc.Kind == "Deployment" || doc.Kind == "StatefulSet" {
				pods[doc.Metadata.Name] = doc.Spec.Template.Spec
			}
		}
	}
	return pods
}

func TestManifests(t *testing.T) {
	pods := readPods(t)
	for _, name := range []string{"gateway", "worker", "postgres"} {
		p, ok := pods[name]
		if !ok || len(p.Containers) != 1 {
			t.Fatalf("%s is missing", name)
		}
		if !p.Security.NonRoot || p.Security.User == 0 || p.Token == nil || *p.Token || p.Security.Seccomp.Type == "" {
			t.Errorf("%s: the pod runs as root, mounts a token or has no seccomp profile: %+v", name, p.Security)
		}
		for _, c := range append(p.Init, p.Containers...) {
			s := c.Security
			if s.Escalation == nil || *s.Escalation || !s.ReadOnly || s.Privileged || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s %s: the container has too many privileges: %+v", name, c.Name, s)
			}
			if s.ProcMount == "Unmasked" && (p.HostUsers == nil || *p.HostUsers) {
				t.Errorf("%s %s: /proc is unmasked, but the pod has no user namespace", name, c.Name)
			}
			for _, e := range c.Env {
				if e.Value != "" && secretlike.Name(e.Name) && !strings.HasPrefix(e.Value, "/") {
					t.Errorf("%s: %s contains a secret in plain text", name, e.Name)
				}
			}
		}
		if name != "postgres" {
			checkCommand(t, name, p.Containers[0].Args, time.Duration(p.Grace)*time.Second)
			writable(t, name, &p)
			knowsTheDatabase(t, name, &p)
		}
	}
	g := pods["gateway"].Containers[0]
	if g.Live == nil || g.Live.HTTP.Path != "/healthz" || g.Startup == nil || g.Startup.HTTP.Path != "/healthz" || g.Ready == nil || g.Ready.Exec.Command[0] != "/usr/bin/ambit-ready" {
		t.Errorf("the gateway has wrong probes: %+v %+v %+v", g.Live, g.Startup, g.Ready)
	}
	var profile struct {
		Syscalls []struct{ Names []string }
	}
	text, err := os.ReadFile(folder + "kubernetes/worker-seccomp.json")
	if err != nil || json.Unmarshal(text, &profile) != nil || len(profile.Syscalls) == 0 {
		t.Fatal(err)
	}
	for _, s := range profile.Syscalls {
		for _, needed := range []string{"unshare", "mount", "pivot_root", "seccomp", "landlock_restrict_self", "clone", "umount2", "sethostname"} {
			if slices.Contains(s.Names, needed) {
				t.Errorf("the seccomp profile blocks %s, which the sandbox needs", needed)
			}
		}
	}
}

// writable checks that a pod can write to its home and to the work directories.
func writable(t *testing.T, name string, p *pod) {
	t.Helper()
	var dir string
	for _, e := range p.Containers[0].Env {
		if e.Name == "AMBIT_HOME" {
			dir = e.Value
		}
	}
	for _, path := range []string{dir, workOf(dir)} {
		if !slices.ContainsFunc(p.Containers[0].Mounts, func(m mount) bool {
			return m.Path == path && !m.ReadOnly && slices.Contains(p.Volumes, struct{ Name string }{m.Name})
		}) {
			t.Errorf("%s: %q is not writable", name, path)
		}
	}
}

// knowsTheDatabase checks that the CA certificate of the database is mounted in the pod, read-only.
func knowsTheDatabase(t *testing.T, name string, p *pod) {
	t.Helper()
	var ca string
	for _, arg := range p.Containers[0].Args {
		if store, ok := strings.CutPrefix(arg, "--store="); ok {
			if u, err := url.Parse(store); err == nil {
				ca = u.Query().Get("sslrootcert")
			}
		}
	}
	if !slices.ContainsFunc(p.Containers[0].Mounts, func(m mount) bool {
		return m.Path == filepath.Dir(ca) && m.ReadOnly && slices.Contains(p.Volumes, struct{ Name string }{m.Name})
	}) {
		t.Errorf("%s: the CA certificate %q is not mounted", name, ca)
	}
}

// TestAgents builds the image's directory of agents as described in the README. It checks that the directory
// contains a program, and that gateways and workers find this program.
func TestAgents(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(folder + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	readme, layer := read("README.md"), read("container/agents.Containerfile")
	place := regexp.MustCompile(`\nFROM ambit\nCOPY agents (\S+)/agents\nENV COVENANT_HOME=(\S+)\n$`).FindStringSubmatch(layer)
	if place == nil || place[1] != place[2] {
		t.Fatalf("ambit does not look for agents in the directory of the image: %s", layer)
	}
	var set struct {
		Images []struct {
			Name string
			New  string `yaml:"newName"`
			Tag  string `yaml:"newTag"`
		}
	}
	if err := yaml.Unmarshal([]byte(read("kubernetes/kustomization.yaml")), &set); err != nil || len(set.Images) != 1 {
		t.Fatalf("kustomization.yaml must contain one image: got %+v, error %v", set, err)
	}
	built := regexp.MustCompile(`(?m)^podman build -f deploy/container/agents.Containerfile -t (\S+) (\S+)$`).FindStringSubmatch(readme)
	if image := set.Images[0]; built == nil || built[1] != image.New+":"+image.Tag {
		t.Fatalf("the README builds %q, but %+v is deployed", built, image)
	}
	pods := readPods(t)
	for _, name := range []string{"gateway", "worker"} {
		for _, c := range append(pods[name].Init, pods[name].Containers...) {
			if image, _, _ := strings.Cut(c.Image, ":"); image != set.Images[0].Name {
				t.Errorf("%s uses the image %s, which does not contain the agents", name, c.Image)
			}
			for _, m := range c.Mounts {
				if strings.HasPrefix(place[1]+"/agents/", m.Path+"/") {
					t.Errorf("%s: the mount at %s hides the agents", name, m.Path)
				}
			}
		}
	}

	t.Chdir(t.TempDir())
	for _, m := range regexp.MustCompile(`(?m)^ambit (.*)$`).FindAllStringSubmatch(readme, -1) {
		var out bytes.Buffer
		if code := cli.Run(t.Context(), strings.Fields(m[1]), strings.NewReader(""), &out, &out); code != 0 {
			t.Errorf("ambit %s: %s", m[1], out.String())
		}
	}
	found, err := daemon.Find(filepath.Join(built[2], "agents"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(f daemon.Found) bool { return f.Problem == nil && dispatch.TakesIntents(f.Manifest.Agent()) }) {
		t.Errorf("a worker finds no program in %+v", found)
	}
}

// TestReady runs the probe with and without a daemon.
func TestReady(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	t.Setenv("AMBIT_HOME", home)
	if err := os.MkdirAll(filepath.Join(home, "agents"), 0o700); err != nil {
		t.Fatal(err)
	}
	ask := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), folder+"container/ready")
		cmd.Env = []string{"AMBIT_HOME=" + home, "https_proxy=http://192.0.2.1:9", "http_proxy=http://192.0.2.1:9"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := ask(); err == nil || !strings.HasPrefix(out, "not ready") {
		t.Errorf("without a daemon: got error %v, output %s", err, out)
	}
	ctx, stop := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--json"}, strings.NewReader(""), out, io.Discard)
		out.Close()
	}()
	var up struct{ URL string }
	if err := json.NewDecoder(in).Decode(&up); err != nil || up.URL == "" {
		t.Fatalf("the daemon did not start: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := ask()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err, out)
		}
	}
	stop()
	<-ended
	if _, err := ask(); err == nil {
		t.Error("the probe succeeds after the daemon has exited")
	}
}
