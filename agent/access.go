package agent

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Access lists what one tool server is allowed to use on this machine. A sandbox enforces the list and hides everything
// else from the server.
type Access []Right

// Right allows a server to use one thing.
type Right struct {
	Kind RightKind `json:"kind"`
	// The field What is a path, a host (NAME or NAME:PORT), or a program. [Any] stands for every public host or every
	// program.
	What string `json:"what"`
	// Private allows the host to have a private or loopback address.
	Private bool `json:"private,omitempty"`
	// Reason explains to the owner why the server has the right. It is not part of the right itself.
	Reason string `json:"reason,omitempty"`
}

// RightKind is what a [Right] allows, such as reading a path or connecting to a host.
type RightKind string

// These are the kinds of rights. A server that can write a path can also read it.
const (
	CanRead    RightKind = "read"
	CanWrite   RightKind = "write"
	CanConnect RightKind = "connect"
	CanExecute RightKind = "execute"
)

// Any stands for every public host, or for every program.
const Any = "*"

// Access derives the access of a tool server from the manifest alone. The classes of the server's callable tools
// decide whether the server can write files, connect to hosts or start programs. The server's arguments and settings
// name the paths and hosts. A server on another machine has no access to this machine.
//
// Arguments and settings are free text, so Access recognizes only whole paths, URLs and HOST:PORT. The owner can add
// rights that the list lacks.
func (a *Agent) Access(s *Server) Access {
	if s.Transport == StreamableHTTP {
		return nil
	}
	tools := map[SideEffect]string{} // the first callable tool of each class
	for i := range a.Tools {
		t := &a.Tools[i]
		if b, ok := t.Binding.(OnServer); !ok || b.Alias != s.Alias || !a.Callable(t) {
			continue
		}
		class := t.SideEffect
		if class != Read && class != Write && class != Network {
			class = Shell // tools of an unknown class may do anything
		}
		if tools[class] == "" {
			tools[class] = t.Name
		}
	}
	why := func(class SideEffect, does string) string {
		if tools[class] == "" {
			return ""
		}
		return "its tool " + tools[class] + " " + does
	}
	runs := why(Shell, "runs commands")
	writes, connects := cmp.Or(why(Write, "writes"), runs), cmp.Or(why(Network, "connects"), runs)
	var access Access
	if runs != "" {
		access.add(Right{Kind: CanExecute, What: Any, Reason: runs})
	}
	for _, m := range s.mentions() {
		for _, path := range m.paths() {
			r := Right{Kind: CanRead, What: path, Reason: m.where}
			if writes != "" && !ofSystem(path) {
				r.Kind, r.Reason = CanWrite, m.where+", and "+writes
			}
			access.add(r)
		}
		for _, host := range m.hosts() {
			r := Right{Kind: CanConnect, What: host, Reason: m.where + ", and " + connects}
			if LocalHost(host) {
				r.Reason += "; the address is local, so the right takes effect only with: ambit allow --private"
			}
			if connects != "" {
				access.add(r)
			}
		}
	}
	if connects != "" && len(access.Of(CanConnect)) == 0 {
		access.add(Right{Kind: CanConnect, What: Any, Reason: connects + ", and the manifest names no host"})
	}
	return access
}

// add adds a right unless the list already contains it.
func (a *Access) add(r Right) {
	if !slices.ContainsFunc(*a, r.Same) {
		*a = append(*a, r)
	}
}

// Same reports whether r and other allow the same thing. It ignores their reasons.
func (r Right) Same(other Right) bool {
	r.Reason, other.Reason = "", ""
	return r == other
}

// Of returns the rights in the list that have the given kind.
func (a Access) Of(kind RightKind) Access {
	var of Access
	for _, r := range a {
		if r.Kind == kind {
			of = append(of, r)
		}
	}
	return of
}

// With returns a copy of the list with additional rights. A right to write replaces the right to read the same path.
func (a Access) With(more Access) Access {
	with := slices.Clone(a)
	for _, r := range more {
		if r.Kind == CanWrite {
			with = slices.DeleteFunc(with, func(old Right) bool { return old.Kind == CanRead && old.What == r.What })
		}
		if r.Kind == CanRead && slices.ContainsFunc(with, Right{Kind: CanWrite, What: r.What}.Same) {
			continue
		}
		with.add(r)
	}
	return with
}

// Allows reports whether the list allows everything that r allows.
func (a Access) Allows(r Right) bool {
	return slices.ContainsFunc(a, func(have Right) bool {
		switch {
		case have.Same(r):
			return true
		case have.Kind == CanWrite && (r.Kind == CanRead || r.Kind == CanWrite), have.Kind == CanRead && r.Kind == CanRead:
			return r.What == have.What || strings.HasPrefix(r.What, strings.TrimSuffix(have.What, "/")+"/")
		case have.Kind != r.Kind || r.Private && !have.Private:
			return false
		case have.What == Any:
			return true
		}
		host, _, err := net.SplitHostPort(r.What) // a host without a port covers all ports
		return r.Kind == CanConnect && (have.What == r.What || err == nil && host == have.What)
	})
}

// String describes the right without its reason, such as "write /data".
func (r Right) String() string {
	text := string(r.Kind) + " " + r.What
	switch {
	case r.Kind == CanConnect && r.What == Any:
		text = "connect to any public host"
	case r.Kind == CanConnect:
		text = "connect to " + r.What
	case r.Kind == CanExecute && r.What == Any:
		text = "start any program"
	case r.Kind == CanExecute:
		text = "start " + r.What
	}
	if r.Private {
		text += ", even at a private address"
	}
	return text
}

// mention is a text from a server's arguments or settings. The text may name paths and hosts.
type mention struct {
	// name is the name of the setting or flag. It may be empty.
	name, text string
	// where describes the location of the text in messages to the owner.
	where string
}

func (s *Server) mentions() []mention {
	var list []mention
	flag := "" // the previous argument if that argument is a flag without a value
	for _, arg := range s.Args {
		m := mention{flag, arg, "named in its arguments"}
		flag = ""
		if name, value, ok := strings.Cut(arg, "="); ok && strings.Trim(name, nameCharacters+".") == "" {
			m.name, m.text = name, value
		} else if strings.HasPrefix(arg, "-") {
			flag = arg
		}
		list = append(list, m)
	}
	for _, set := range s.Env {
		if !slices.Contains(PlainEnv, set.Name) { // a sandbox has its own HOME, PATH and TMPDIR
			list = append(list, mention{set.Name, set.Value, "named in its setting " + set.Name})
		}
	}
	return list
}

// paths returns the paths in the text. The text can be a path, a list of paths with commas or colons, or a URL of a
// local file.
func (m mention) paths() []string {
	text := m.text
	for _, scheme := range []string{"file://", "sqlite://"} {
		if rest, ok := strings.CutPrefix(text, scheme); ok {
			rest, _, _ = strings.Cut(rest, "?")
			text, _ = url.PathUnescape(rest) // the result is "" if the text is not valid
		}
	}
	list := []string{text}
	for _, separator := range []string{",", ":"} {
		if parts := strings.Split(text, separator); len(parts) > 1 && !slices.ContainsFunc(parts, notPath) {
			list = parts
		}
	}
	var paths []string
	for _, text := range list {
		if clean := cleanPath(text); clean != "" {
			paths = append(paths, clean)
		}
	}
	return paths
}

func notPath(text string) bool { return cleanPath(text) == "" }

// notDeclared lists folders with devices, processes and sockets. Arguments and settings never give a server a right to
// them.
var notDeclared = []string{"/proc", "/sys", "/dev", "/run", "/var/run"}

// systemFolders lists the folders with the programs and settings of the operating system. A path in these folders
// usually names a program or a certificate, not a file that the server works on. Arguments and settings therefore never
// give a server the right to write to these folders.
var systemFolders = []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"}

func ofSystem(path string) bool {
	return slices.ContainsFunc(systemFolders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// cleanPath returns the shortest form of a path. It returns "" if the text is not a path, if a relative path leads
// out of the home folder or the working folder, or if the path is in a folder of notDeclared. It also returns "" for
// /, because / means the whole file system and is also a common URL prefix.
func cleanPath(text string) string {
	home := ""
	for _, prefix := range []string{"~", "$env:HOME"} {
		if rest, ok := strings.CutPrefix(text, prefix); ok && (rest == "" || rest[0] == '/') {
			home, text = prefix, "."+rest
		}
	}
	clean := path.Clean(text)
	below := func(folder string) bool { return clean == folder || strings.HasPrefix(clean, folder+"/") }
	switch {
	case !isPath(text) || strings.Contains(text, "$env:"):
		return ""
	case clean == "/" || below("..") || slices.ContainsFunc(notDeclared, below):
		return ""
	case home != "":
		return path.Join(home, clean)
	}
	return clean
}

// hosts returns the hosts in the text: the hosts of URLs, and HOST:PORT. A name without a port looks like a file name,
// so hosts returns it only if the setting or flag has a name such as DB_HOST. hosts never returns a part of a password.
func (m mention) hosts() []string {
	texts := []string{m.text}
	if !strings.Contains(m.text, "@") { // a comma before @ can be a part of a password
		texts = strings.Split(m.text, ",")
	}
	var hosts []string
	for _, text := range texts {
		if scheme, rest, ok := strings.Cut(text, "://"); ok {
			if scheme != "" && strings.Trim(scheme, nameCharacters+"+.:") == "" {
				hosts = append(hosts, hostsOfURL(rest)...)
			}
			continue
		}
		host, port := SplitHost(text)
		dotted := strings.Contains(host, ".")
		if port != "" && (dotted || isAddress(host) || LocalHost(host)) ||
			port == "" && dotted && m.namesHost() && !isAddress(host) {
			hosts = append(hosts, joinHost(host, port))
		}
	}
	return hosts
}

// hostsOfURL returns the hosts of a URL. The parameter rest is the part of the URL after "://". A URL such as
// mongodb://a,b/db has several hosts. If an @ occurs after the first "/", "?", "#" or ";", hostsOfURL returns nil,
// because the text before the @ may be a password.
func hostsOfURL(rest string) []string {
	end := strings.IndexAny(rest+"/", "/?#;")
	at := strings.LastIndex(rest, "@")
	if at > end {
		return nil
	}
	var hosts []string
	for text := range strings.SplitSeq(rest[at+1:end], ",") {
		if host := ParseHost(text); host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// namesHost reports whether the name of the setting or flag suggests that its value is a host.
func (m mention) namesHost() bool {
	name := strings.TrimSuffix(strings.ToLower(m.name), "s")
	return slices.ContainsFunc([]string{"host", "hostname", "domain", "endpoint"}, func(word string) bool {
		return strings.HasSuffix(name, word)
	})
}

// ParseHost returns the canonical spelling of a host, which is NAME, NAME:PORT, an IP address, or an IP address with a
// port. It returns "" for other texts.
func ParseHost(text string) string {
	host, port := SplitHost(text)
	return joinHost(host, port)
}

func joinHost(host, port string) string {
	if host == "" || port == "" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// SplitHost returns the canonical host and the port in a text. The host is a name in lower case or an IP address. It is
// empty if the text is not valid. The port is empty if the text has none.
func SplitHost(text string) (host, port string) {
	host = text
	if h, p, err := net.SplitHostPort(text); err == nil {
		number, err := strconv.ParseUint(p, 10, 16)
		if err != nil || number == 0 {
			return "", ""
		}
		host, port = h, strconv.FormatUint(number, 10)
	} else if h, ok := strings.CutSuffix(text, "]"); ok && strings.HasPrefix(h, "[") && strings.Contains(h, ":") {
		host = h[1:]
	}
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		return address.String(), port
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, nameCharacters) != "" {
			return "", ""
		}
	}
	digits := "0123456789" // some resolvers treat 127.1 and 0x7f.0x1 as IP addresses
	last, hex := strings.CutPrefix(labels[len(labels)-1], "0x")
	if hex {
		digits += "abcdef"
	}
	if len(host) > 253 || strings.Trim(last, digits) == "" {
		return "", ""
	}
	return host, port
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// sharedAddresses is the shared address space of RFC 6598, which providers and overlay networks use internally.
var sharedAddresses = netip.MustParsePrefix("100.64.0.0/10")

// LocalHost reports whether a host is localhost or an address that is not public. The host may have a port.
func LocalHost(host string) bool {
	name, _ := SplitHost(host)
	if address, err := netip.ParseAddr(name); err == nil {
		address = address.Unmap()
		return !address.IsGlobalUnicast() || address.IsPrivate() || sharedAddresses.Contains(address)
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
