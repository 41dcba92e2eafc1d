package covenant

import (
	"math"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// foreignNames maps field names of other formats to field names of this dialect.
var foreignNames = map[string]string{
	"agents": "agent", "package": "agent",
	"agent_id": "id", "slug": "id", "title": "name", "display_name": "name",
	"language": "runtime", "lang": "runtime", "interpreter": "runtime", "engine": "runtime",
	"main": "entry", "entrypoint": "entry", "entry_point": "entry", "command": "entry", "path": "entry",
	"script": "entry", "bin": "entry",
	"requires": "required", "needs": "required",
	"timeout": "cpu_ms_per_task", "timeout_ms": "cpu_ms_per_task", "cpu_ms": "cpu_ms_per_task",
	"wall_clock_ms": "cpu_ms_per_task", "memory": "memory_mb", "ram": "memory_mb", "mem_mb": "memory_mb",
	"disk": "disk_mb", "storage_mb": "disk_mb", "net": "network",
	"budget": "budget_credits_per_hour", "credits_per_hour": "budget_credits_per_hour",
}

// These maps contain the hints for common wrong values of enumerated fields. Misspellings need no entry, because
// OneOf recognizes them.
var (
	meantRuntime = map[string]string{
		"python": `write "python3"`, "py": `write "python3"`,
		"node.js": `write "node"`, "nodejs": `write "node"`, "javascript": `write "node"`, "js": `write "node"`,
		"deno": `write "node"`, "bun": `write "node"`,
		"rust": `write "rust-bin"`, "bin": `write "rust-bin"`, "binary": `write "rust-bin"`,
		"native": `write "rust-bin"`, "exec": `write "rust-bin"`,
		"go":     `write "rust-bin": ambit executes entry directly, whatever language the program is written in`,
		"hermes": "ambit does not support hermes, a runtime of later Covenant releases; use rust-bin, python3 or node",
	}
	meantNetwork = map[string]string{
		"none": `write "off"`, "no": `write "off"`, "false": `write "off"`, "disabled": `write "off"`,
		"https": `write "outbound-https-only"`, "https-only": `write "outbound-https-only"`,
		"outbound": `write "outbound-https-only"`,
		"on":       httpsFirst, "true": httpsFirst, "yes": httpsFirst, "enabled": httpsFirst,
		"all": `write "full"`, "any": `write "full"`, "host": `write "full"`,
	}
	meantPriority = map[string]string{
		"medium": `write "normal"`, "default": `write "normal"`, "urgent": `write "high"`, "critical": `write "high"`,
	}
)

// httpsFirst is the hint for a value that requests some network access, but not full access.
const httpsFirst = `write "outbound-https-only"; only a program that needs protocols other than HTTPS needs "full"`

type parser struct {
	read.Reader
	root doc.Value
}

// Parse parses a manifest and reports every broken rule.
func Parse(root doc.Value, rep *diag.Reporter) *Manifest {
	p := &parser{read.Reader{Reporter: rep, Foreign: foreignNames, Unknown: diag.UnknownField}, root}
	// Unknown top-level sections can belong to other programs, so Done is not called.
	o := p.Object(root)
	p.checkSections(root)
	return &Manifest{
		Agent:        p.agent(o),
		Capabilities: p.capabilities(p.Object(o.Get("capabilities", read.Optional))),
		Resources:    p.resources(p.Object(o.Get("resources", read.Optional))),
		Settlement:   p.settlement(p.Object(o.Get("settlement", read.Optional))),
		Sandbox:      p.sandbox(p.Object(o.Get("sandbox", read.Optional))),
	}
}

// sections lists all known sections.
var sections = append(slices.Clone(Keys), "sandbox")

// checkSections reports unknown sections whose names are similar to a known section. All other unknown sections are
// ignored.
func (p *parser) checkSections(root doc.Value) {
	for v := range root.Each() {
		if slices.Contains(sections, v.Key()) || !v.Is(doc.Object) {
			continue
		}
		if near := diag.Closest(v.Key(), sections); near != "" && !root.Get(near).Ok() {
			p.Report(ruleSection, v.KeyPlace(), "did you mean ["+near+"]?", "the section %s has no effect", diag.Quote(v.Key()))
		}
	}
}

var agentFields = []string{"id", "name", "version", "runtime", "entry"}

func (p *parser) agent(root *read.Object) Agent {
	need := read.Required
	if root.Ok() && !root.Value().Get("agent").Ok() {
		if i := slices.IndexFunc(agentFields, func(key string) bool { return p.root.Get(key).Ok() }); i >= 0 {
			p.missing(root.Value(), "agent", "put the line [agent] above "+agentFields[i])
			need = read.Optional
		}
	}
	o := p.Object(root.Get("agent", need))
	a := Agent{
		ID:      p.requiredText(o, "id").Text(),
		Name:    p.requiredText(o, "name").Text(),
		Version: p.requiredText(o, "version").Text(),
		Runtime: p.oneOf(p.requiredText(o, "runtime"), runtimes, meantRuntime, ""),
		Entry:   p.requiredText(o, "entry").Text(),
	}
	p.checkID(o.Value().Get("id"), a.ID)
	p.checkVersion(o.Value().Get("version"), a.Version)
	p.checkEntry(o.Value().Get("entry"), a.Entry)
	o.Done()
	return a
}

func (p *parser) missing(in doc.Value, key, hint string) {
	p.Report(diag.Missing, in.MissingPlace(key), hint, "%s is required", diag.Quote(key))
}

// blanks contains the white-space characters. A text that consists only of white space is treated as empty. The JSON
// Schema of the dialect uses the same characters.
const blanks = " \t\r\n"

// requiredText returns a required field of [agent]. If the field is missing, empty or not a string, requiredText
// reports the problem and returns an absent value.
func (p *parser) requiredText(o *read.Object, key string) doc.Value {
	need := read.Required
	if o.Ok() && !o.Value().Get(key).Ok() && p.root.Get(key).Ok() {
		p.missing(o.Value(), key, "move "+diag.Quote(key)+" from the top of the file to below [agent]")
		need = read.Optional
	}
	v := o.Get(key, need)
	if !p.Is(v, doc.String) {
		return doc.Value{}
	}
	if strings.Trim(v.Text(), blanks) == "" {
		p.Report(diag.EmptyText, v.Place(), "", "%s must not be empty", diag.Quote(key))
		return doc.Value{}
	}
	return v
}

// oneOf returns the text of a value if the text is one of the allowed words. Otherwise oneOf reports the text, with a
// hint for common mistakes, and returns the fallback.
func (p *parser) oneOf(v doc.Value, words []string, hints map[string]string, fallback string) string {
	if !p.Is(v, doc.String) {
		return fallback
	}
	if hint := hints[strings.ToLower(v.Text())]; hint != "" {
		p.Report(diag.NotInEnum, v.Place(), hint, "%s is not allowed for %s; use %s", diag.Quote(v.Text()),
			diag.Quote(v.Key()), diag.Words(words, "or"))
		return fallback
	}
	if !p.OneOf(v, words) {
		return fallback
	}
	return v.Text()
}

func (p *parser) checkID(v doc.Value, id string) {
	name, host, ok := strings.Cut(id, "@")
	switch {
	case id == "":
	case !ok && isIDPart(name):
		p.Report(rulePlainID, v.Place(), "write "+diag.Quote(name+"@local"), "the id %s has no host", diag.Quote(id))
	case !isIDPart(name) || !isIDPart(host):
		p.Report(ruleID, v.Place(), "", "the id %s is not of the form name@host", diag.Quote(id))
	}
}

func isIDPart(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return s != ""
}

func (p *parser) checkVersion(v doc.Value, version string) {
	if version == "" || isSemVer(version) {
		return
	}
	hint := ""
	for _, better := range []string{strings.TrimPrefix(version, "v"), version + ".0", version + ".0.0"} {
		if isSemVer(better) {
			hint = "write " + diag.Quote(better)
			break
		}
	}
	p.Report(ruleVersion, v.Place(), hint, "the version %s is not SemVer", diag.Quote(version))
}

func isSemVer(s string) bool {
	_, err := semver.StrictNewVersion(s)
	return err == nil
}

func (p *parser) checkEntry(v doc.Value, entry string) {
	switch {
	case entry == "":
		return
	case strings.ContainsFunc(entry, isControl):
		p.Report(ruleEntryCharacters, v.Place(), "", "the entry path contains a control character")
	case !namesFile(entry):
		p.Report(ruleEntryFolder, v.Place(), "", "the entry %s does not name a file", diag.Quote(entry))
	case strings.HasPrefix(path.Clean(entry), "../"):
		p.Report(ruleEntryOutside, v.Place(), "", "the entry %s is outside the manifest's folder", diag.Quote(entry))
	}
	if strings.Contains(entry, `\`) {
		p.Report(ruleEntryBackslash, v.Place(), "", "the entry %s contains a backslash", diag.Quote(entry))
	}
}

// namesFile reports whether a path ends in a file name. A name that consists only of dots and spaces is not a file
// name. Paths with control characters are rejected.
func namesFile(entry string) bool {
	return strings.Trim(entry[strings.LastIndexByte(entry, '/')+1:], ". ") != "" && !strings.ContainsFunc(entry, isControl)
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7F }

func (p *parser) capabilities(o *read.Object) Capabilities {
	c := Capabilities{
		Required: p.Distinct(o.List("required", read.Optional), p.isAction),
		Optional: p.Distinct(o.List("optional", read.Optional), p.isAction),
	}
	var required read.Seen
	for _, action := range c.Required {
		required.Add(action)
	}
	for v := range o.Value().Get("optional").Each() {
		if required.Has(v.Text()) {
			p.Report(ruleBothLists, v.Place(), "", "%s is already required", diag.Quote(v.Text()))
		}
	}
	o.Done()
	return c
}

// isAction reports whether a value is a valid action. If not, it records a diagnostic.
func (p *parser) isAction(v doc.Value) bool {
	action := v.Text()
	namespace, names, _ := strings.Cut(action, ".")
	switch {
	case !slices.Contains(namespaces, namespace):
		p.Report(ruleNamespace, v.Place(), namespaceHint(action),
			"%s is outside the reserved namespaces intent., memory., identity., tool. and agent.", diag.Quote(action))
		return false
	case names == "" || strings.HasPrefix(names, ".") || strings.HasSuffix(names, ".") || strings.Contains(names, ".."):
		p.Report(ruleAction, v.Place(), "", "a part of the action %s is missing", diag.Quote(action))
		return false
	case strings.ContainsAny(action, "*"+blanks):
		p.Report(ruleActionCharacters, v.Place(), "", "%s contains white space or *", diag.Quote(action))
	}
	return true
}

// namespaceHint suggests an action in a known namespace. For example, it suggests tool.web instead of tools.web or
// tool:web. It returns "" if no namespace is similar.
func namespaceHint(action string) string {
	i := strings.IndexAny(action, ".:/")
	if i < 0 || i+1 == len(action) {
		return ""
	}
	namespace := action[:i]
	if !slices.Contains(namespaces, namespace) {
		namespace = diag.Closest(namespace, namespaces)
	}
	if namespace == "" {
		return ""
	}
	return "did you mean " + diag.Quote(namespace+"."+action[i+1:]) + "?"
}

func (p *parser) resources(o *read.Object) Resources {
	r := defaultResources()
	p.readAmount(o, "cpu_ms_per_task", &r.CPUMsPerTask)
	p.readAmount(o, "memory_mb", &r.MemoryMB)
	p.readAmount(o, "disk_mb", &r.DiskMB)
	if r.CPUMsPerTask == 0 {
		p.Report(ruleNoBudget, o.Value().Get("cpu_ms_per_task").Place(), "",
			"cpu_ms_per_task is 0, so the program has no time to run")
	}
	if r.MemoryMB == 0 {
		p.Report(ruleNoBudget, o.Value().Get("memory_mb").Place(), "", "memory_mb is 0, so the program has no memory")
	}
	r.Network = p.oneOf(o.Get("network", read.Optional), networks, meantNetwork, r.Network)
	o.Done()
	return r
}

// readAmount stores the value of a whole-number field in *n. If the field is missing or invalid, *n keeps its default.
// The largest amount is the largest integer of TOML.
func (p *parser) readAmount(o *read.Object, key string, n *int64) {
	if v, ok := o.Int(key, read.Optional, 0, math.MaxInt64); ok {
		*n = v
	}
}

func (p *parser) settlement(o *read.Object) Settlement {
	s := defaultSettlement()
	p.readAmount(o, "budget_credits_per_hour", &s.BudgetCreditsPerHour)
	s.Priority = p.oneOf(o.Get("priority", read.Optional), priorities, meantPriority, s.Priority)
	o.Done()
	return s
}

func (p *parser) sandbox(o *read.Object) *Sandbox {
	if !o.Ok() {
		return nil
	}
	s := &Sandbox{}
	s.Required, _ = o.Bool("required", read.Optional)
	s.Backend = p.oneOf(o.Get("backend", read.Optional), backends, nil, "")
	s.Filesystem = p.oneOf(o.Get("filesystem", read.Optional), filesystem, nil, "")
	if s.Required && s.Backend == trustedLocal {
		p.Report(ruleNoSandbox, o.Value().Get("backend").Place(), "",
			"the backend %s is not a sandbox, but a sandbox is required", diag.Quote(trustedLocal))
	}
	if s.Filesystem == hostFiles {
		p.Report(ruleHostFiles, o.Value().Get("filesystem").Place(), "", "the program cannot use the files of the host")
	}
	o.Done()
	return s
}
