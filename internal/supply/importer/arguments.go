package importer

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// arguments returns the arguments that do not look like a secret: flags, paths,
// addresses, packages, plain words. Options for secrets are dropped, and so are
// trailing words. Dropping any other argument would move the next word into its place
// or remove a limit; then ok is false and the server cannot be copied.
func (b *builder) arguments(what, command string, args []string, env func(name, value string, given bool)) (out []string, ok bool) {
	w := &walk{builder: b, what: what, env: env, out: []string{}, left: -1}
	w.enter(command, true)
	refuse := func(name string) ([]string, bool) {
		b.note(Dropped, what, "%s may be or refer to a secret, and without it the command would change", name)
		return nil, false
	}
	for w.at < len(args) {
		taken, refused := w.next(args[w.at:])
		if refused != "" {
			w.withholdFirst(args[w.at:])
			return refuse(refused)
		}
		w.at += taken
		w.before = args[w.at-1]
	}
	out, left, named := w.out, w.left, w.named
	if left >= 0 && (len(out) > left || !named) {
		return refuse("an argument")
	}
	// A manifest reads the first word as the package and the part after @ as its
	// version, and a word after a secret's option as the secret.
	first := slices.IndexFunc(out, func(a string) bool { return !dashed(a) })
	if f := familyOf(command); f != nil && f.packages != "" && first > 0 && inList(out[first-1], f.values) &&
		(strings.Contains(out[first], "@") || strings.Contains(out[first], "==")) {
		return refuse("the value of " + out[first-1])
	}
	for i, a := range out[:max(len(out)-1, 0)] {
		if dashed(a) && !strings.Contains(a, "=") && secretlike.Name(a) && !dashed(out[i+1]) {
			return refuse("the argument after " + a)
		}
	}
	return out, true
}

// walk reads the arguments of one command.
type walk struct {
	*builder
	what string
	env  func(name, value string, given bool)
	// family is the family of the program whose options and words are read.
	family *family
	words  string // the words before the program or package that runs
	begun  bool   // all of them were there
	// sure means that everything so far was understood, so the next word is what runs.
	// named means that what runs has been copied.
	sure, named bool
	// container means that options may set variables.
	container bool
	at        int
	before    string // the argument before this one
	out       []string
	left      int // how many were copied when a word was dropped
}

// enter starts reading the arguments of a program.
func (w *walk) enter(command string, sure bool) {
	w.family = familyOf(command)
	w.named = w.family == nil
	if w.named {
		return
	}
	w.words, w.begun = "", w.family.bare
	w.sure = sure && (w.family.bare || w.family.words+w.family.modules != "")
	w.container = w.container || w.family.container
}

// next copies the next argument or two, or drops them. refused names what cannot be
// copied.
func (w *walk) next(args []string) (taken int, refused string) {
	arg, next := args[0], ""
	if len(args) > 1 {
		next = args[1]
	}
	flag, value, joined := w.parted(arg)
	switch {
	case dashed(arg) && strings.ContainsFunc(flag, unicode.IsSpace) && !w.gluedHeader(arg):
		return 0, "an option with blanks" // it may contain its value
	case w.named:
		return w.ordinary(arg, next)
	}
	if w.family.others && inList(flag, "-u --user") {
		if !joined {
			value = next
		}
		if !user.MatchString(value) || w.containsWithheld(value) {
			return 0, "the value of " + flag
		}
		if joined {
			return w.copied(arg)
		}
		return w.copied(arg, next)
	}
	if w.sure && dashed(arg) {
		if taken, refused = w.own(arg, next); taken > 0 || refused != "" {
			return taken, refused
		}
		// The next word may or may not be its value.
		w.sure = joined && !w.short(arg)
	}
	switch {
	case !dashed(arg) && (assignment.MatchString(arg) && !versioned.MatchString(arg) || code(arg) || slices.Contains(shells, base(arg))):
		return 0, "an argument"
	case w.sure && !dashed(arg):
		return w.name(arg)
	case w.container && !w.sure && joined && (w.short(arg) || strings.HasPrefix(arg, "--env")):
		return 0, "a variable"
	}
	return w.ordinary(arg, next)
}

// short reports whether arg is one of a container's one-letter options, whose value
// follows directly.
func (w *walk) short(arg string) bool {
	return w.container && dashed(arg) && !strings.HasPrefix(arg, "--")
}

// own reads a known option of a program that runs others. It reads nothing for other
// programs.
func (w *walk) own(arg, next string) (taken int, refused string) {
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
	case arg == "--" || inList(arg, f.switches) || f.cluster(arg):
		return w.copied(arg)
	case w.short(arg) && len(arg) > 2 && inList(arg[:2], f.values):
		if _, ok := w.value(arg[:2], strings.TrimPrefix(arg[2:], "=")); !ok || strings.Contains(arg, "://") {
			return 0, "the value of " + arg[:2]
		}
		return w.copied(arg)
	case next == "" || dashed(next):
		return 0, ""
	case inList(arg, f.values):
		kept, ok := w.value(arg, next)
		if !ok {
			return 0, "the value of " + arg
		}
		w.out = append(w.out, arg, kept)
		return 2, ""
	case inList(arg, f.packages), inList(arg, f.modules):
		if (w.risky(next) && !w.plain(next) || strings.Contains(next, "://")) && !(inList(arg, f.packages) && w.place(next)) {
			return 0, "the value of " + arg
		}
		w.named = inList(arg, f.modules)
		return w.copied(arg, next)
	}
	return 0, ""
}

// variableOf returns the variable that a container's option sets, and the number of
// words it takes.
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

// name reads a word when everything before it was understood: it precedes what runs,
// or is what runs. Only such a word may look like a secret.
func (w *walk) name(arg string) (taken int, refused string) {
	if !w.begun {
		words := strings.TrimSpace(w.words + " " + arg)
		all, some := w.family.launches(words)
		switch {
		case all || some:
			w.words, w.begun = words, all
			return w.copied(arg)
		case w.words != "" || !isPath(arg) && !fileName.MatchString(arg):
			w.sure = false
			return w.ordinary(arg, "")
		}
	}
	image := w.family.container && !w.containsWithheld(arg) && (imageTag.MatchString(arg) && !tokenLike(imageDigest.ReplaceAllString(arg, "")) ||
		imagePath.MatchString(arg) && !secretlike.Find(arg).Found())
	switch {
	case familyOf(arg) != nil && !w.family.container:
		w.enter(arg, true)
		return w.copied(arg)
	case w.risky(arg) && !w.plain(arg) && !image:
		w.sure = false
		w.leave(arg)
		return 1, ""
	case strings.Contains(arg, "://"):
		kept, ok := w.address(w.what, arg)
		if !ok {
			return 0, "an address"
		}
		arg = kept
	}
	w.named = true
	return w.copied(arg)
}

// ordinary reads an argument of unknown meaning.
func (w *walk) ordinary(arg, next string) (taken int, refused string) {
	flag, value, joined := w.parted(arg)
	if w.gluedHeader(arg) {
		flag, value, joined = "-H", arg[2:], true
	}
	option := dashed(arg)
	glued := option && len(arg) > 2 && arg[1] != '-' && !joined
	switch {
	case option && joined && w.secret(flag, value):
		if doubtful(flag, value) {
			return 0, "the value of " + flag
		}
		w.withholdValue(value)
		w.note(Secret, w.what, "the value of %s is not copied: pass it through the environment", flag)
		return 1, ""
	case line.MatchString(arg):
		return 0, "a command line with options"
	case !option && containsSecret(arg):
		return 0, "an argument"
	case option && joined:
		kept, ok := w.option(flag, value)
		if !ok {
			return 0, "the value of " + flag
		}
		return w.copied(flag + "=" + kept)
	case option && w.riskyBehindColon(arg):
		return 0, "the value of an option"
	case glued && (w.secret(arg[:2], arg[2:]) || w.risky(arg[2:]) && !numbers.MatchString(arg[2:])):
		return 0, "the value of " + arg[:2]
	case option && secretName(arg) && dashed(next) && !plainOption.MatchString(next):
		return 0, "the value of " + arg
	case option && next != "" && !dashed(next) && w.secret(arg, next):
		if !w.named || doubtful(arg, next) {
			return 0, "the value of " + arg // or what runs, or a limit
		}
		w.withholdValue(next)
		w.note(Secret, w.what, "%s and its value are not copied: pass it through the environment", arg)
		return 2, ""
	case w.risky(arg) && !(dashed(w.before) && !strings.Contains(w.before, "=") && w.setting(w.before, arg)):
		w.leave(arg)
		return 1, ""
	case strings.Contains(arg, "://"):
		kept, ok := w.address(w.what, arg)
		if !ok {
			return 0, "an address"
		}
		arg = kept
	case familyOf(arg) != nil && !strings.ContainsAny(arg, `/\`):
		w.enter(arg, false) // it may run what follows
	case slices.Contains(shells, base(arg)) && shellOption.MatchString(next):
		return 0, "a shell command"
	}
	return w.copied(arg)
}

func (w *walk) copied(args ...string) (taken int, refused string) {
	w.out = append(w.out, args...)
	return len(args), ""
}

func (w *walk) leave(arg string) {
	w.withhold(arg)
	if w.left < 0 {
		w.left = len(w.out)
	}
	w.note(Secret, w.what, "argument %d is not copied: it may be or refer to a secret", w.at+1)
}

// withholdValue withholds a value, and the part after a header's or user's name.
func (w *walk) withholdValue(value string) {
	w.withhold(value)
	if _, behind, found := strings.Cut(value, ":"); found {
		w.withhold(behind)
	}
}

// withholdFirst withholds the refused value or word.
func (w *walk) withholdFirst(args []string) {
	_, value, joined := w.parted(args[0])
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

// value checks the value of a known option: paths, names or numbers.
func (w *walk) value(flag, value string) (kept string, ok bool) {
	switch {
	case inList(flag, "--name --hostname") && w.plain(value):
		return value, true
	case !strings.Contains(value, "=") || strings.Contains(value, "://"):
		return w.option(flag, value)
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '=' })
	return value, !containsSecret(value) && !slices.ContainsFunc(parts, w.risky)
}

// option checks the value of an option without a secret's name.
func (w *walk) option(flag, value string) (kept string, ok bool) {
	switch {
	case line.MatchString(value), !w.named && slices.Contains(shells, base(value)): // of --entrypoint
		return "", false
	case containsSecret(value), secretlike.Name(flag) && value != "", w.risky(value) && !w.setting(flag, value):
		return "", false
	case strings.Contains(value, "://"):
		return w.address(w.what, value)
	}
	return value, true
}

// parted splits an option and its value in one argument: --x=y, and --token:y for a
// secret.
func (b *builder) parted(arg string) (flag, value string, joined bool) {
	flag, value, joined = strings.Cut(arg, "=")
	if m := colon.FindStringSubmatch(arg); m != nil && b.secret(m[1], m[2]) {
		return m[1], m[2], true
	}
	return flag, value, joined
}

// riskyBehindColon reports whether the value of an option that is not a secret's may
// be a secret.
func (b *builder) riskyBehindColon(arg string) bool {
	m := colon.FindStringSubmatch(arg)
	return m != nil && b.risky(m[2]) && !b.setting(m[1], m[2])
}

// gluedHeader reports whether an argument is -H directly followed by a header.
func (b *builder) gluedHeader(arg string) bool {
	return strings.HasPrefix(arg, "-H") && b.secret("-H", arg[2:])
}

// address checks a URL that must reach the same place as before: without its query it
// would not.
func (w *walk) address(what, raw string) (kept string, ok bool) {
	kept, ok = w.builder.address(what, raw)
	raw, _, _ = strings.Cut(raw, "#")
	_, asked, _ := strings.Cut(raw, "?")
	_, query, _ := strings.Cut(kept, "?")
	return kept, ok && asked == query
}

// place reports whether an option's package is an address without secrets.
func (w *walk) place(arg string) bool {
	at := strings.TrimPrefix(arg, "git+")
	if !strings.Contains(at, "://") || strings.ContainsAny(at, "?#") || w.risky(at) {
		return false
	}
	kept, ok := w.address(w.what, at)
	return ok && kept == at
}

// doubtful reports whether an option with a secret's name may have no secret: it is a
// switch, or names a file or a login method.
func doubtful(flag, value string) bool {
	return bounding.MatchString(flag) || isPath(value) || fileName.MatchString(value) || harmless(value) || wayIn.MatchString(value) ||
		authFlag.MatchString(flag) && plainWord.MatchString(value)
}

// secret reports whether an option is for a secret, by its name or by this value.
func (b *builder) secret(flag, value string) bool {
	switch {
	case secretName(flag):
		return true
	case inList(flag, "-H --header --headers"):
		return header.MatchString(value) && !strings.Contains(value, "://") && !numbers.MatchString(value)
	case inList(flag, "-u --user"):
		return strings.Contains(value, ":") && !strings.Contains(value, "://") && !user.MatchString(value)
	}
	return strings.HasSuffix(strings.ToLower(flag), "-key") && b.risky(value)
}

// secretName reports whether an option or variable of this name contains a secret.
func secretName(name string) bool {
	name = strings.TrimRight(name, "0123456789") // --token2
	return !strings.HasPrefix(name, "--no-") && (secretlike.Name(name) || passName.MatchString(name) && !otherPass.MatchString(name))
}

// containsSecret reports whether a text contains a secret's name and value.
func containsSecret(text string) bool {
	if strings.Contains(text, "://") {
		return false // it is split elsewhere
	}
	for _, m := range inner.FindAllStringSubmatch(text, -1) {
		if secretName(m[1] + m[2] + m[3]) {
			return true
		}
	}
	return false
}

func dashed(arg string) bool { return strings.HasPrefix(arg, "-") }

// code reports whether an argument is neither a word nor a path.
func code(arg string) bool {
	return strings.ContainsAny(arg, " \t\r\n;|&()<>'\"`") && !isPath(arg)
}

// isPath reports whether an argument is a path.
func isPath(arg string) bool {
	return arg != "" && strings.Contains("/.~", arg[:1]) || drive.MatchString(arg)
}

// plain reports whether the name of a program or package looks like one.
func (b *builder) plain(name string) bool {
	return (plainName.MatchString(name) && !tokenLike(name) || versioned.MatchString(name) && !secretlike.Find(name).Found()) && !b.containsWithheld(name)
}

// setting reports whether the value of an option contains digits but is no password:
// 3.12, 512m and 8080:80 for any option, us-east-1 and python3 for some.
func (b *builder) setting(flag, value string) bool {
	return (numbers.MatchString(value) || settingFlag.MatchString(flag) && plainName.MatchString(value)) && !tokenLike(value) && !b.containsWithheld(value)
}

var (
	plainName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	plainOption  = regexp.MustCompile(`^-[A-Za-z]$|^--[A-Za-z][A-Za-z-]*(=.*)?$`)
	variableName = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	assignment   = regexp.MustCompile(`^[A-Za-z_][\w.-]*=`)
	imageTag     = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)
	imagePath    = regexp.MustCompile(`^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)
	imageDigest  = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	line         = regexp.MustCompile(`\s--?[A-Za-z]|^--?[A-Za-z][^\s=]*\s`)
	colon        = regexp.MustCompile(`(?s)^(--?[A-Za-z][\w.-]*):(.*)$`)
	// inner are names in /name:value (not in a volume, /a:/b), name:value and
	// name=value.
	inner       = regexp.MustCompile(`^/([A-Za-z][\w.-]*):[^/]|(?:^|[^\w/.-])-*([A-Za-z][\w.-]*):|([A-Za-z][\w-]*)(?:=|["']\s*:|:\s)`)
	shellOption = regexp.MustCompile(`^(-[A-Za-z]+|/[A-Za-z])$`)
	header      = regexp.MustCompile(`^[A-Za-z][\w-]*:\s*\S`)
	passName    = regexp.MustCompile(`(?i)(pass|passwd|pwd|passphrase|passcode|mnemonic|seed[-_]?phrase|(^|[-_])(pw|pin|psk|t?otp|creds?))$`)
	otherPass   = regexp.MustCompile(`(?i)(by|com)pass$`)
	// bounding are options that switch something, recognized by a word in their names.
	bounding    = regexp.MustCompile(`(?i:disable|omit|skip|without|allow|ignore|type|mode([^l]|$))|[-_]no[-_]|^--?no[A-Z]`)
	authFlag    = regexp.MustCompile(`(?i)auth(entication|orization)?$`)
	plainWord   = regexp.MustCompile(`^[A-Za-z][A-Za-z-]{0,15}$`)
	wayIn       = regexp.MustCompile(`(?i)^(basic|bearer|digest|oauth2?|oidc|saml|sso|ntlm|kerberos|iam|azcli|[a-z]+-cli|cli|env|envvar|interactive|browser|device|default|auto|managed|anonymous|integrated)$`)
	numbers     = regexp.MustCompile(`^(localhost:)?\d{1,5}([.:,x]\d{1,5})*[a-z]{0,2}$`)
	settingFlag = regexp.MustCompile(`^--([a-z-]+-)?(region|zone|location|model|platform|arch|profile|level|network|encoding|python|with|version|cache|loglevel|` +
		`host|hostname|server|database|db|dbname|schema|table|collection|bucket|dataset|namespace|cluster|instance|project|workspace|org|team|mode|transport)$`)
	// user is the user that a program runs as.
	user = regexp.MustCompile(`^[a-z_][a-z_-]*$|^\d{1,6}(:\d{1,6})?$`)
)
