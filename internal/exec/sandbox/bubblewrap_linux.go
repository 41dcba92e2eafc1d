//go:build amd64 || arm64

package sandbox

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// scratch is the path of the writable tmpfs, which holds HOME and /tmp.
const scratch = "/scratch"

// These constants hold the id of the only user inside the sandbox, as text and as a number.
const (
	user       = "1000"
	insideUser = 1000
)

const path = "PATH=/usr/local/bin:/usr/bin:/bin"

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// systemDirs are the system folders that programs need. A folder that is a symbolic link on this machine is a symbolic
// link in the sandbox too.
var systemDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// systemFiles are public files in /etc, such as certificates, library paths, the time zone, protocol names
// and fonts.
var systemFiles = []string{
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", "/etc/localtime", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
	"/etc/mime.types", "/etc/os-release", "/etc/fonts", "/etc/chromium.d",
}

//go:embed node-proxy.cjs
var nodeProxy string

const nodeProxyFile = "/etc/ambit/node-proxy.cjs"

// syntheticFiles returns the path and the content of each file that ambit generates for the sandbox.
func syntheticFiles(s shape) [][2]string {
	files := [][2]string{
		{"/etc/passwd", "agent:x:" + user + ":" + user + "::" + Home + ":/bin/sh\n"},
		{"/etc/group", "agent:x:" + user + ":\n"},
		{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
		{shim.CanaryFile, "canary\n"},
	}
	switch {
	case s.network && s.tier == Strong:
		files = append(files, [2]string{nodeProxyFile, nodeProxy})
	case s.network:
		files[3][1] = "passwd: files\ngroup: files\nhosts: files dns\n"
		files = append(files, [2]string{"/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:5\n"})
	}
	if s.interpreter != "" {
		file, text := gateScript(s.interpreter)
		files = append(files, [2]string{file, text})
	}
	return files
}

// maxCopy is the maximum size of a system file that is copied into a sandbox. Larger files are mounted. A copy is
// faster than a mount.
const maxCopy = 128 << 10

// copiedFiles returns the path and the content of each small file in systemFiles that every user may read.
func copiedFiles() (files [][2]string) {
	for _, file := range systemFiles {
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 || info.Size() > maxCopy {
			continue
		}
		if text, err := os.ReadFile(file); err == nil {
			files = append(files, [2]string{file, string(text)})
		}
	}
	return files
}

func environment(s *Spec) []string {
	env := []string{path, "HOME=" + Home, "TMPDIR=/tmp", "LANG=C.UTF-8", "USER=agent"}
	if s.Network != nil && s.Tier == Strong {
		proxy := "http://127.0.0.1:" + strconv.Itoa(shim.ProxyPort)
		env = append(
			env, "HTTPS_PROXY="+proxy, "https_proxy="+proxy, "HTTP_PROXY="+proxy, "http_proxy="+proxy,
			"ALL_PROXY="+proxy, "NO_PROXY=", "no_proxy=", "NODE_OPTIONS=--require="+nodeProxyFile,
		)
	}
	return append(env, s.Env...)
}

// sources returns the mounted paths that can change between the creation and the use of a prepared sandbox. It leaves
// out system folders, because they do not change.
func sources(s shape) []string {
	out := slices.Clone(systemFiles)
	for _, m := range s.mounts {
		out = append(out, m.Source)
	}
	return out
}

// prepareBubblewrap sets the command of the launch, and the plan's lists of files that the program is allowed to open.
// The parameter files contains the path and the content of each file that bubblewrap creates. The caller must pass the
// content of files[i] to bubblewrap as descriptor shim.FDData+i.
func prepareBubblewrap(p *shim.Plan, l *launch, s shape, bwrap string, files [][2]string) {
	a := []string{
		bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session",
		"--clearenv", "--cap-drop", "ALL", "--uid", user, "--gid", user, "--hostname", "sandbox",
		"--json-status-fd", strconv.Itoa(shim.FDStatus),
	}
	// The shim uses these capabilities and then drops them. The option --disable-userns cannot be used here, because
	// it creates a nested user namespace, in which the capabilities have no effect on the namespaces of the sandbox.
	if p.Network {
		a = append(a, "--cap-add", "CAP_NET_BIND_SERVICE")
	}
	if p.NoExec {
		a = append(a, "--cap-add", "CAP_SYS_ADMIN")
	}
	if !p.Network && !p.NoExec {
		a = append(a, "--disable-userns")
	}
	p.ReadOnly = []string{"/usr", "/etc", "/proc"}
	if p.NoExec {
		for _, folder := range s.programs.folders {
			a = append(a, "--ro-bind", folder, folder)
		}
		p.Execute, p.Cover = s.programs.execute, s.programs.covered
	} else {
		a = append(a, "--ro-bind", "/usr", "/usr")
	}
	for _, dir := range systemDirs {
		if to, err := os.Readlink(dir); err == nil {
			a = append(a, "--symlink", to, dir)
		} else if _, err := os.Stat(dir); err == nil && (!p.NoExec || slices.Contains(s.programs.folders, dir)) {
			a = append(a, "--ro-bind", dir, dir)
			p.ReadOnly = append(p.ReadOnly, dir)
		}
	}
	a = append(a, "--dir", "/etc")
	for _, file := range systemFiles {
		if !slices.ContainsFunc(files, func(f [2]string) bool { return f[0] == file }) {
			a = append(a, "--ro-bind-try", file, file)
		}
	}
	for i, f := range files {
		a = append(a, "--perms", "0444", "--file", strconv.Itoa(shim.FDData+i), f[0])
	}
	a = append(a, "--proc", "/proc", "--size", "65536", "--tmpfs", "/dev")
	for _, d := range devices {
		a = append(a, "--dev-bind", d, d)
	}
	p.Devices = devices
	memoryDisk := strconv.FormatInt(s.disk, 10)
	if s.tier == Confined {
		// In this tier, s.disk limits the private folder, and the memory disk gets a limit of its own. Without a cgroup,
		// nothing else limits the memory disk.
		memoryDisk = strconv.FormatInt(min(s.disk, s.bounds.memory/4), 10)
	}
	a = append(
		a, "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
		"--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
		"--symlink", scratch+"/shm", "/dev/shm", "--remount-ro", "/dev",
		"--size", memoryDisk, "--tmpfs", scratch, "--dir", Home,
		"--dir", scratch+"/tmp", "--dir", scratch+"/shm",
	)
	p.ReadWrite = []string{scratch}
	if s.tier == Confined {
		// A declared path below /tmp must have the same path in the sandbox, so /tmp must not be a link.
		a = append(a, "--size", memoryDisk, "--tmpfs", "/tmp")
		p.ReadWrite = append(p.ReadWrite, "/tmp")
	} else {
		a = append(a, "--symlink", "scratch/tmp", "/tmp")
	}
	// seals are options that make folders read-only. They must follow all mounts, because bubblewrap creates mount points
	// in these folders.
	var seals []string
	for _, m := range s.mounts {
		if m.Hide {
			a, seals = append(a, "--tmpfs", m.To), append(seals, "--remount-ro", m.To)
			continue
		}
		source := l.expose(m.Source, m.AsOwner)
		if m.Write {
			a = append(a, "--bind", source, m.To)
			p.ReadWrite = append(p.ReadWrite, filepath.Clean(m.To))
			continue
		}
		a = append(a, "--ro-bind", source, m.To)
		p.ReadOnly = append(p.ReadOnly, filepath.Clean(m.To))
	}
	if p.NoExec {
		for _, folder := range s.programs.hidden {
			a, seals = append(a, "--tmpfs", folder), append(seals, "--remount-ro", folder)
		}
		for _, l := range s.programs.links {
			a = append(a, "--symlink", l[0], l[1])
		}
		for _, file := range s.programs.files {
			m := s.programs.mountOf(file)
			a = append(a, "--ro-bind", l.expose(s.programs.outside(file), m != nil && m.AsOwner), file)
		}
	}
	l.argv = append(append(a, seals...), "--remount-ro", "/", "--chdir", "/", "--",
		"/proc/self/fd/"+strconv.Itoa(shim.FDExe), shim.Shim)
	l.env = []string{}
}
