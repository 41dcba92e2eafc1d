package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// copyArguments returns the arguments of a command. It copies flags, paths, URLs, packages and plain words. It replaces
// every value that could be a secret with a reference such as $env:API_KEY, so that the command keeps its meaning. The
// program or package to run, and the options of the launcher, cannot be references, because they decide which code
// runs. If one of them could be a secret, the second result is false and the server is not imported.
//
// copyArguments calls env() for each environment variable that an option sets. The last argument of env() reports
// whether the option contains a value.
func (b *builder) copyArguments(what string, s *server,
	env func(name, value string, given bool),
) (out []string, ok bool) {
	w := &walk{builder: b, what: what, server: s, env: env, out: []string{}}
	w.enter(s.command, true)
	refuse := func(name string) ([]string, bool) {
		b.note(Dropped, what, "the command cannot be copied, because %s could be a secret or refer to a secret", name)
		return nil, false
	}
	for w.at < len(s.args) {
		taken, refused := w.next(s.args[w.at:])
		if refused != "" {
			w.withholdFirst(s.args[w.at:])
			return refuse(refused)
		}
		w.at += taken
		w.before = s.args[w.at-1]
	}
	if w.replaced {
		return refuse("an argument")
	}
	// The validation of the manifest treats the first word as the package. If that word contains an @, the text after the
	// @ is the package version.
	out = w.out
	first := slices.IndexFunc(out, func(a string) bool { return !dashed(a) })
	if f := familyOf(s.command); f != nil && f.packages != "" && first > 0 && inList(out[first-1], f.values) &&
		(strings.Contains(out[first], "@") || strings.Contains(out[first], "==")) {
		return refuse("the value of " + out[first-1])
	}
	for _, found := range secretlike.Args(out) {
		w.withhold(out[found.Index][found.Start:found.End])
		return refuse("the value of " + found.Name)
	}
	return out, true
}

// walk holds the state of reading the arguments of one command.
type walk struct {
	*builder
	what   string
	server *server
	env    func(name, value string, given bool)
	// family describes the launcher whose arguments are being read. It is nil for any other program.
	family *family
	words  string // the part of the subcommand that has been read so far
	begun  bool   // whether the subcommand is complete
	// understood is true if every argument so far was understood. In that case, the next word belongs to the subcommand,
	// or is the program or package to run.
	understood bool
	// hasTarget is true if the command is not a launcher, or if the program or package to run was already copied.
	hasTarget bool
	// container is true if the program runs containers. In that case, its options can set environment variables.
	container bool
	at        int    // the index of the current argument
	before    string // the argument before the current argument
	out       []string
	replaced  bool // whether an argument before the target was replaced
}

// enter starts reading the arguments of a program. The parameter understood reports whether every argument before the
// program was understood.
func (w *walk) enter(command string, understood bool) {
	w.family = familyOf(command)
	w.hasTarget = w.family == nil
	if w.hasTarget {
		return
	}
	w.words, w.begun = "", w.family.bare
	w.understood = understood && (w.family.bare || w.family.subcommands+w.family.modules != "")
	w.container = w.container || w.family.container
}

// next reads one or two arguments, and copies or replaces them. It returns the number of arguments that it read. If an
// argument can be neither copied nor replaced, refused describes that argument.
func (w *walk) next(args []string) (taken int, refused string) {
	arg, next := args[0], ""
	if len(args) > 1 {
		next = args[1]
	}
	if w.hasTarget {
		return w.readOther(arg, next)
	}
	flag, value, joined := w.splitOption(arg)
	if dashed(arg) && strings.ContainsFunc(flag, unicode.IsSpace) {
		return 0, "an option that contains spaces" // the text after the space could be the option's value
	}
	if w.family.otherContext && inList(flag, "-u --user") {
		if !joined {
			value = next
		}
		if !userName.MatchString(value) || w.containsWithheld(value) {
			return 0, "the value of " + flag
		}
		if joined {
			return w.copied(arg)
		}
		return w.copied(arg, next)
	}
	if w.understood && dashed(arg) {
		if taken, refused = w.readFamilyOption(arg, next); taken > 0 || refused != "" {
			return taken, refused
		}
		// The next word could be the value of this option, or the program to run.
		w.understood = joined && !w.isShort(arg)
	}
	switch {
	case !dashed(arg) &&
		(assignment.MatchString(arg) && !versioned.MatchString(arg) || isCode(arg) || slices.Contains(shells, base(arg))):
		return 0, "an argument"
	case w.understood && !dashed(arg):
		return w.readName(arg)
	case w.container && !w.understood && joined && (w.isShort(arg) || strings.HasPrefix(arg, "--env")):
		return 0, "a variable"
	}
	return w.readOther(arg, next)
}

// isShort reports whether arg is a one-letter option of a container program. The value of such an option can follow the
// letter directly.
func (w *walk) isShort(arg string) bool {
	return w.container && dashed(arg) && !strings.HasPrefix(arg, "--")
}

// readFamilyOption reads an option that the current family defines. For any other option, it returns 0 and "".
func (w *walk) readFamilyOption(arg, next string) (taken int, refused string) {
	f := w.family
	if set, words := variableOf(arg, next); f.container && words > 0 {
		name, value, given := strings.Cut(set, "=")
		if !variableName.MatchString(name) || tokenLike(name) || w.containsWithheld(name) {
			return 0, "a variable"
		}
		w.env(name, value, given)
		w.out = append(w.out, "-e", name)
		return words, ""
	}
	switch {
	case arg == "--" || inList(arg, f.switches) || f.isCluster(arg):
		return w.copied(arg)
	case w.isShort(arg) && len(arg) > 2 && inList(arg[:2], f.values):
		if _, ok := w.checkKnownValue(arg[:2], strings.TrimPrefix(arg[2:], "=")); !ok || strings.Contains(arg, "://") {
			return 0, "the value of " + arg[:2]
		}
		return w.copied(arg)
	case next == "" || dashed(next):
		return 0, ""
	case inList(arg, f.values):
		kept, ok := w.checkKnownValue(arg, next)
		if !ok {
			return 0, "the value of " + arg
		}
		return w.copied(arg, kept)
	case inList(arg, f.packages), inList(arg, f.modules):
		if (w.risky(next) && !w.isPlainName(next) || strings.Contains(next, "://")) &&
			!(inList(arg, f.packages) && w.isSafeURL(next)) {
			return 0, "the value of " + arg
		}
		w.hasTarget = inList(arg, f.modules)
		return w.copied(arg, next)
	}
	return 0, ""
}

// variableOf reads an option of a container program. If the option sets an environment variable, the first result is
// NAME or NAME=value. The second result is the number of arguments that the option takes.
func variableOf(arg, next string) (set string, words int) {
	if long, joined := strings.CutPrefix(arg, "--env="); joined {
		return long, 1
	}
	short, found := strings.CutPrefix(arg, "-e")
	switch {
	case arg == "-e" || arg == "--env":
		return next, 2
	case found:
		return strings.TrimPrefix(short, "="), 1
	}
	return "", 0
}

// readName reads a word of the subcommand, or the program or package to run. It is called only if every argument before
// the word was understood. The name of a package can look like a secret. If a word has the form of a package name,
// readName therefore copies the word even if it looks like a secret.
func (w *walk) readName(arg string) (taken int, refused string) {
	if !w.begun {
		words := strings.TrimSpace(w.words + " " + arg)
		all, some := w.family.matchSubcommand(words)
		switch {
		case all || some:
			w.words, w.begun = words, all
			return w.copied(arg)
		case w.words != "" || !isPath(arg) && !fileName.MatchString(arg):
			w.understood = false
			return w.readOther(arg, "")
		}
	}
	image := w.family.container && !w.containsWithheld(arg) &&
		(imageTag.MatchString(arg) && !tokenLike(imageDigest.ReplaceAllString(arg, "")) ||
			imagePath.MatchString(arg) && !secretlike.Find(arg).Found())
	switch {
	case familyOf(arg) != nil && !w.family.container:
		w.enter(arg, true)
		return w.copied(arg)
	case w.risky(arg) && !w.isPlainName(arg) && !image:
		return 0, "the program or package to run"
	case strings.Contains(arg, "://"):
		kept, ok := w.checkURL(arg)
		if !ok {
			return 0, "an address"
		}
		arg = kept
	}
	w.hasTarget = true
	if w.family.runsFile && w.family == familyOf(w.server.command) {
		arg = w.server.places.code(arg)
	}
	return w.copied(arg)
}

// readOther reads an argument whose meaning is unknown.
func (w *walk) readOther(arg, next string) (taken int, refused string) {
	flag, value, joined := w.splitOption(arg)
	m := colon.FindStringSubmatch(arg)
	switch {
	case !dashed(arg) && slices.Contains(shells, base(arg)) && shellOption.MatchString(next):
		return 0, "a shell command"
	case w.gluedHeader(arg):
		return w.copied("-H" + w.value("-H", arg[2:]))
	case !dashed(arg):
		if familyOf(arg) != nil && !strings.ContainsAny(arg, `/\`) {
			w.enter(arg, false) // arg could be a launcher, followed by the program to run
		}
		return w.copied(w.value("", arg))
	case strings.ContainsFunc(flag, unicode.IsSpace) || tokenLike(flag) || w.containsWithheld(flag):
		return w.copied(w.refer("", arg)) // the option contains its value, in an unknown form
	case joined:
		return w.copied(arg[:len(arg)-len(value)] + w.value(flag, value))
	case len(arg) > 2 && arg[1] != '-' && !numbers.MatchString(arg[2:]) &&
		(w.isSecret(arg[:2], arg[2:]) || w.risky(arg[2:])):
		return w.copied(arg[:2] + w.refer(arg[:2], arg[2:]))
	case m != nil:
		return w.copied(m[1] + ":" + w.value(m[1], m[2]))
	case next != "" && (!dashed(next) || secretName(arg) && !plainOption.MatchString(next)):
		switch {
		case w.hasTarget && familyOf(next) == nil && !slices.Contains(shells, base(next)):
			return w.copied(arg, w.value(arg, next))
		case w.isSecret(arg, next):
			return 0, "the value of " + arg // the value could be the program to run
		}
	}
	return w.copied(arg)
}

func (w *walk) copied(args ...string) (taken int, refused string) {
	w.out = append(w.out, args...)
	return len(args), ""
}

// value returns the value of an option, or a reference to a variable with that value. It returns the value itself only
// if the value cannot be a secret. For an argument that is not the value of an option, flag is "".
func (w *walk) value(flag, value string) string {
	value = w.server.places.data(value)
	if text, found := w.server.expand(value); found {
		if len(secretlike.Args([]string{flag, text})) == 0 && w.isPlainAround(value) {
			w.replaced = w.replaced || !w.hasTarget
			return text
		}
		return w.refer(flag, value)
	}
	name, assigned, isPair := strings.Cut(value, "=")
	switch {
	case value == "" || secretlike.PlainValue(value):
		return value
	case isPair && assigned != "" && !strings.ContainsAny(assigned, ";=& ") &&
		pairName.MatchString(name) && !tokenLike(name) && !secretName(flag):
		return name + "=" + w.value(name, assigned)
	case w.isSecret(flag, value), lineWithOptions.MatchString(value), containsSecret(value), w.containsWithheld(value):
		return w.refer(flag, value)
	case strings.Contains(value, "://"):
		if w.plainURL(value) {
			return value
		}
		return w.refer(flag, value)
	case !settingFlag.MatchString(flag) && passphrase(value), flag == "-p" && couldBePassword(value):
		return w.refer(flag, value)
	case w.risky(value) && !w.isSetting(flag, value):
		return w.refer(flag, value)
	}
	return value
}

// refer withholds a possible secret, and returns a reference to a variable that replaces it.
func (w *walk) refer(flag, value string) string {
	w.replaced = w.replaced || !w.hasTarget
	w.withholdValue(value)
	if flag == "" {
		n := strconv.Itoa(w.at + 1)
		return w.builder.refer(w.what, "argument "+n, w.server.alias+"_argument_"+n, w.server.alias, value)
	}
	name := strings.Trim(flag, "-")
	if !strings.HasPrefix(variable(name), variable(w.server.alias)+"_") {
		name = w.server.alias + "_" + name
	}
	if head, _, found := strings.Cut(value, ":"); secretlike.HeaderOption(flag) && found && header.MatchString(value) {
		// Only the value of the header becomes a reference.
		body := strings.TrimLeft(value[len(head)+1:], " \t")
		return value[:len(value)-len(body)] +
			w.builder.refer(w.what, "the header "+head, w.server.alias+"_"+head, w.server.alias, body)
	}
	return w.builder.refer(w.what, "the value of "+flag, name, w.server.alias, value)
}

// withholdValue withholds a value. If the value has the form name:value, or contains an option and its value, it
// withholds the inner value too.
func (w *walk) withholdValue(value string) {
	w.withhold(value)
	if _, behind, found := strings.Cut(value, ":"); found {
		w.withhold(behind)
	}
	// The argument contains an option and its value.
	if words := strings.Fields(value); dashed(value) && len(words) > 1 {
		for _, word := range words[1:] {
			w.withholdValue(word)
		}
	}
}

// withholdFirst withholds the value that next() rejected. The value is args[0], a part of args[0], or args[1]. It is
// args[1] if args[0] is an option that does not contain the value.
func (w *walk) withholdFirst(args []string) {
	_, value, joined := w.splitOption(args[0])
	words, parts := strings.Fields(args[0]), colon.FindStringSubmatch(args[0])
	switch {
	case dashed(args[0]) && len(words) > 1:
		for _, word := range words[1:] {
			w.withholdValue(word)
		}
	case joined:
		w.withholdValue(value)
	case parts != nil:
		w.withholdValue(parts[2])
	case !dashed(args[0]):
		w.withholdValue(args[0])
	case len(args[0]) > 2 && args[0][1] != '-' && w.risky(args[0][2:]):
		w.withholdValue(args[0][2:])
	case len(args) > 1:
		w.withholdValue(args[1])
	}
}

// checkKnownValue checks the value of a known option of a launcher and returns the value to copy. The second result is
// false if the value could be a secret.
func (w *walk) checkKnownValue(flag, value string) (kept string, ok bool) {
	switch {
	case inList(flag, "--name --hostname") && w.isPlainName(value):
		return value, true
	case !strings.Contains(value, "=") || strings.Contains(value, "://"):
		return w.checkValue(flag, value)
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '=' })
	return value, !containsSecret(value) && !slices.ContainsFunc(parts, w.risky)
}

// checkValue checks the value of an option whose name does not suggest a secret, and returns the value to copy. The
// second result is false if the value could be a secret.
func (w *walk) checkValue(flag, value string) (kept string, ok bool) {
	switch {
	case lineWithOptions.MatchString(value), slices.Contains(shells, base(value)): // as in --entrypoint=sh
		return "", false
	case containsSecret(value), secretlike.Name(flag) && value != "", w.risky(value) && !w.isSetting(flag, value):
		return "", false
	case strings.Contains(value, "://"):
		return w.checkURL(value)
	}
	return value, true
}

// splitOption splits an argument such as --x=y into an option and its value. If the name of the option suggests a
// secret, an argument such as --token:y is also split. The third result reports whether the argument contains a value.
func (b *builder) splitOption(arg string) (flag, value string, joined bool) {
	flag, value, joined = strings.Cut(arg, "=")
	if m := colon.FindStringSubmatch(arg); m != nil && b.isSecret(m[1], m[2]) {
		return m[1], m[2], true
	}
	return flag, value, joined
}

// gluedHeader reports whether an argument is the option -H with a header directly after it, without a space.
func (b *builder) gluedHeader(arg string) bool {
	return strings.HasPrefix(arg, "-H") && b.isSecret("-H", arg[2:])
}

// checkURL calls cleanURL for a URL in an argument. The second result is also false if cleanURL changed the query,
// because the cleaned URL then has a different meaning.
func (w *walk) checkURL(raw string) (kept string, ok bool) {
	kept, ok = w.cleanURL(w.what, raw)
	raw, _, _ = strings.Cut(raw, "#")
	_, asked, _ := strings.Cut(raw, "?")
	_, query, _ := strings.Cut(kept, "?")
	return kept, ok && asked == query
}

// isSafeURL reports whether the argument of a package option is a URL without secrets.
func (w *walk) isSafeURL(arg string) bool {
	at := strings.TrimPrefix(arg, "git+")
	if !strings.Contains(at, "://") || strings.ContainsAny(at, "?#") || w.risky(at) {
		return false
	}
	kept, ok := w.checkURL(at)
	return ok && kept == at
}

// isSecret reports whether an option is for a secret, judging by the name or the value of the option.
func (b *builder) isSecret(flag, value string) bool {
	switch {
	case secretName(flag):
		return true
	case secretlike.HeaderOption(flag):
		return header.MatchString(value) && !strings.Contains(value, "://") && !numbers.MatchString(value)
	case secretlike.UserPassword(flag, value) != "":
		return !userName.MatchString(value) && !isPath(value)
	}
	return strings.HasSuffix(strings.ToLower(flag), "-key") && b.risky(value)
}

// couldBePassword reports whether the value of -p could be a password. Such a value can also be a port, a path or the
// name of a project.
func couldBePassword(value string) bool {
	return len(value) >= 6 && !dashed(value) && !isPath(value) && !numbers.MatchString(value) &&
		!fileName.MatchString(value) && !strings.Contains(value, "://") && !harmless(value)
}

// secretName reports whether the name of an option or a variable suggests a secret.
func secretName(name string) bool {
	return !strings.HasPrefix(name, "--no-") && secretlike.Name(name)
}

// containsSecret reports whether a text contains the name of a secret together with a value.
func containsSecret(text string) bool {
	if strings.Contains(text, "://") {
		return false // cleanURL checks URLs
	}
	for _, m := range innerNames.FindAllStringSubmatch(text, -1) {
		if secretName(m[1] + m[2] + m[3]) {
			return true
		}
	}
	return false
}

func dashed(arg string) bool { return strings.HasPrefix(arg, "-") }

// isCode reports whether an argument contains spaces or shell characters and is not a path.
func isCode(arg string) bool {
	return strings.ContainsAny(arg, " \t\r\n;|&()<>'\"`") && !isPath(arg)
}

func isPath(arg string) bool {
	return arg != "" && strings.Contains("/.~", arg[:1]) || drive.MatchString(arg)
}

// isPlainName reports whether name looks like the name of a program or package.
func (b *builder) isPlainName(name string) bool {
	return !b.containsWithheld(name) && (plainName.MatchString(name) && !tokenLike(name) ||
		versioned.MatchString(name) && !secretlike.Find(name).Found())
}

// isSetting reports whether the value of an option is an ordinary setting, even though it contains digits. Values such
// as 3.12, 512m and 8080:80 are settings for every option. Values such as us-east-1 and python3 are settings only for
// the options that match settingFlag.
func (b *builder) isSetting(flag, value string) bool {
	return !tokenLike(value) && !b.containsWithheld(value) &&
		(numbers.MatchString(value) || settingFlag.MatchString(flag) && plainName.MatchString(value))
}

var (
	plainName       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	plainOption     = regexp.MustCompile(`^-[A-Za-z]$|^--[A-Za-z][A-Za-z-]*(=.*)?$`)
	variableName    = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	pairName        = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$|^[A-Za-z][A-Za-z_]*$`)
	assignment      = regexp.MustCompile(`^[A-Za-z_][\w.-]*=`)
	imageTag        = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)
	imagePath       = regexp.MustCompile(`^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)
	imageDigest     = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	lineWithOptions = regexp.MustCompile(`\s--?[A-Za-z]|^--?[A-Za-z][^\s=]*\s`)
	colon           = regexp.MustCompile(`(?s)^(--?[A-Za-z][\w.-]*):(.*)$`)
	// innerNames matches the names in /name:value, name:value and name=value. It does not match a volume such as /a:/b.
	innerNames = regexp.MustCompile(`^/([A-Za-z][\w.-]*):[^/]|(?:^|[^\w/.-])-*([A-Za-z][\w.-]*):|` +
		`([A-Za-z][\w-]*)(?:=|["']\s*:|:\s)`)
	shellOption = regexp.MustCompile(`^(-[A-Za-z]+|/[A-Za-z])$`)
	header      = regexp.MustCompile(`^[A-Za-z][\w-]*:\s*\S`)
	numbers     = regexp.MustCompile(`^(localhost:)?\d{1,5}([.:,x]\d{1,5})*[a-z]{0,2}$`)
	settingFlag = regexp.MustCompile(`^--([a-z-]+-)?(region|zone|location|model|platform|arch|profile|level|` +
		`network|encoding|python|with|version|cache|loglevel|` +
		`host|hostname|server|database|db|dbname|schema|table|collection|bucket|dataset|namespace|` +
		`cluster|instance|project|workspace|org|team|mode|transport)$`)
	// userName matches the name of the user that a program runs as.
	userName = regexp.MustCompile(`^[a-z_][a-z_-]*$|^\d{1,6}(:\d{1,6})?$`)
)
