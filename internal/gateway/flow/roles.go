package flow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Spec describes a tool.
type Spec struct {
	Name, Description string
	Schema            string // the JSON Schema of the arguments, or empty
	// Effect is set unless the tool only reads. Network is set if the tool can send data to others. Destructive is set
	// if the tool's hints mark it as destructive.
	Effect, Network, Destructive bool
}

// Tool is a tool together with the properties that NewTool derives from its name, description and schema.
type Tool struct {
	Spec
	verbs  family   // 0 if the name contains no known verb
	nouns  []uint32 // hashes of the words that name the object of the tool
	schema property
	// fetching is set if the tool reads from an external address that an argument contains.
	fetching bool
	// onPage is set if the tool acts on an element of a web page, and its arguments name the element. inBrowser is also set
	// if the tool certainly controls a browser.
	onPage, inBrowser bool
}

type property struct {
	Type       any                 `json:"type"`
	Format     string              `json:"format"`
	Enum       json.RawMessage     `json:"enum"`
	Properties map[string]property `json:"properties"`
	Items      *property           `json:"items"`
}

// member returns the schema of a member of an object.
func (p property) member(name string) property { return p.Properties[name] }

// element returns the schema of the elements of an array.
func (p property) element() property {
	if p.Items == nil {
		return property{}
	}
	return *p.Items
}

// has reports whether the schema has a member with one of the names at any depth.
func (p property) has(names map[string]bool, depth int) bool {
	for name, member := range p.Properties {
		if names[name] || depth < maxNested && member.has(names, depth+1) {
			return true
		}
	}
	return p.Items != nil && depth < maxNested && p.Items.has(names, depth+1)
}

// role is the meaning of an argument, which decides how its value is judged.
type role int

const (
	other role = iota
	destination
	amount
	identifier
	moment
	path
	code
	prose
	choice // an element of a web page
	option // a value that the schema lists
	excess // one value in place of all arguments, if there are too many or they are nested too deeply
)

var roleNames = []struct {
	role  role
	names string
}{
	{code, `command cmd code script sql expression shell program cmdline commandline statement javascript python bash eval args argv`},
	{destination, `to recipient recipients email emails mail address addresses cc bcc participant participants attendee attendees invitee
invitees channel channels user users username member members payee account accounts iban bic url urls uri uris link href webhook endpoint
host hostname domain phone number_to contact contacts assignee assignees reviewer reviewers destination dest target receiver beneficiary
guest guests subscriber owner handle website site server callback redirect remote sender
empfänger empfanger adresse konto destinatario destinatarios cuenta correo destinataire destinataires compte destinazione conto`},
	{amount, `amount sum price total value quantity qty cost budget limit_amount betrag cantidad monto importe montant importo`},
	{moment, `date time start end day datetime timestamp when until since due deadline start_time end_time begin from_date to_date hour datum zeit fecha hora`},
	{path, `path file filename filepath dir directory folder paths files source_path`},
	{identifier, `id ids uuid guid key ref number sha hash issue pr ticket`},
	{prose, `body content contents text message subject title description comment note notes summary prompt markdown html caption reason details location place venue`},
}

var roleOf = func() map[string]role {
	m := map[string]role{}
	for _, r := range roleNames {
		for name := range strings.FieldsSeq(r.names) {
			if _, taken := m[name]; !taken {
				m[name] = r.role
			}
		}
	}
	return m
}()

// wordSet returns the set of the words in a list.
func wordSet(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		m[w] = true
	}
	return m
}

// urlNames contains the names of arguments whose value is an external address that a tool reads from.
var urlNames = map[string]bool{
	"url": true, "urls": true, "uri": true, "uris": true, "link": true, "href": true, "website": true, "webpage": true, "endpoint": true, "webhook": true,
	"domain": true, "host": true, "hostname": true, "site": true,
}

// hostTools contains words in the names of tools whose arguments name a host.
var hostTools = map[string]bool{"dns": true, "whois": true, "ping": true, "domain": true, "host": true, "hostname": true}

// objectNames contains the names of arguments that identify one object, such as a file, which the tool returns.
var objectNames = map[string]bool{
	"path": true, "paths": true, "file": true, "filepath": true, "filename": true, "url": true, "urls": true, "uri": true, "uris": true, "link": true, "href": true,
}

var (
	// onPage contains argument names. A tool with one of these arguments acts on web pages.
	onPage = map[string]bool{"element": true, "selector": true}
	// pageActions contains verbs in the names of tools. The tools of chrome-devtools have no argument in onPage, because
	// they name an element by its "uid".
	pageActions = map[string]bool{"click": true, "fill": true, "hover": true, "drag": true}
	// inPage contains argument names. In a tool that acts on web pages, these arguments refer to an element of a page.
	// Their values always come from the page, so they are never in doubt.
	inPage = map[string]bool{"element": true, "selector": true, "ref": true, "target": true, "name": true, "uid": true}
)

// pageReference matches the numbers that browser tools give to the elements of a page, such as "e12".
var pageReference = regexp.MustCompile(`^(f\d+)?[es]\d+(e\d+)?$`)

// elementNumber matches the numbers that chrome-devtools gives to the elements of a page, such as "1_12".
var elementNumber = regexp.MustCompile(`^\d+(_\d+)?$`)

// listing contains the verbs of tools that return a list of objects instead of one object.
var listing = map[string]bool{"search": true, "list": true, "find": true, "query": true, "lookup": true, "stat": true, "info": true}

// NewTool derives the properties of a tool from its specification.
func NewTool(s Spec) *Tool {
	t := &Tool{Spec: s}
	if json.Unmarshal([]byte(s.Schema), &t.schema) != nil {
		t.schema = property{} // ignore an unusable schema; the names of the arguments decide
	}
	t.onPage = t.schema.has(onPage, 0) || slices.Contains(nameParts(s.Name), "browser") ||
		hasPart(s.Name, pageActions) && t.schema.has(map[string]bool{"uid": true}, 0)
	t.inBrowser = t.onPage && (hasPart(s.Name, map[string]bool{"browser": true}) || t.schema.has(map[string]bool{"element": true, "ref": true}, 0))
	known := false
	for _, part := range nameParts(s.Name) {
		if f := table.of([]byte(part)); f != 0 && !known {
			known, t.verbs = true, f
		} else {
			t.noun([]byte(part))
		}
	}
	if !known { // if the name contains no known verb, use the description
		first, _, _ := strings.Cut(s.Description, ".")
		w := wordsOf([]byte(first))
		for i := range min(w.len(), 12) {
			if f := table.of(w.token(i)); f != 0 && t.verbs == 0 {
				t.verbs = f
			} else if t.verbs != 0 {
				t.noun(w.token(i))
			}
		}
	}
	if !s.Effect && known && t.pretends() {
		t.Effect, t.Network = true, true
		return t
	}
	if !s.Effect || t.verbs&^fetching == 0 && t.verbs != 0 && !t.sends() {
		for name, p := range t.schema.Properties {
			if p.Format == "uri" || hasPart(name, urlNames) || !s.Effect && hasPart(s.Name, hostTools) {
				t.fetching, t.verbs = true, t.verbs|fetching
			}
		}
	}
	return t
}

// pretends reports whether a tool is declared read-only, but has the verb and the arguments of a tool that sends or
// pays.
func (t *Tool) pretends() bool {
	if t.verbs&(sending|paying) == 0 || t.verbs&fetching != 0 || t.lists() || !t.sends() {
		return false
	}
	for name := range t.schema.Properties {
		if roleOf[name] == destination {
			return true
		}
	}
	return false
}

// sends reports whether the tool takes content in addition to an address.
func (t *Tool) sends() bool {
	for name, p := range t.schema.Properties {
		if roleOf[name] == prose || roleOf[name] == amount || hasPart(name, inputNames) || len(p.Properties) > 0 {
			return true
		}
	}
	return false
}

// noun adds a word for the object of the tool, in the singular and the plural.
func (t *Tool) noun(word []byte) {
	if len(word) < 3 || functionWords[string(word)] || vague[string(word)] {
		return
	}
	singular := strings.TrimSuffix(string(word), "s")
	t.nouns = append(t.nouns, wordsOf([]byte(singular)).hashes...)
	t.nouns = append(t.nouns, wordsOf([]byte(singular+"s")).hashes...)
}

// vague contains words in names and descriptions that do not name an object.
var vague = map[string]bool{
	"given": true, "user": true, "all": true, "new": true, "with": true, "its": true, "into": true, "using": true, "specified": true, "one": true, "more": true,
	"existing": true, "current": true, "tool": true,
}

// adds reports whether a tool only adds a record.
func (t *Tool) adds() bool {
	return t.verbs&creating != 0 && t.verbs&(deleting|changing|running|paying) == 0
}

// addsContact reports whether an argument is the address or telephone number of a contact that the tool adds. Such a tool
// sends nothing to the contact. If the tool can send data, its name must say that it adds a contact, because many address
// books are remote.
func (t *Tool) addsContact(name string) bool {
	remote := t.Network && (t.verbs&sending != 0 || !hasPart(t.Name, newRecords) || !slices.Contains(t.nouns, hashOf([]byte("contact"))))
	if !t.adds() || remote || !hasPart(name, contactNames) {
		return false
	}
	return !slices.ContainsFunc(nameParts(name), func(part string) bool { return !contactNames[part] && !contactKinds[part] })
}

// newRecords contains verbs in the names of tools that add a record.
var newRecords = map[string]bool{"create": true, "add": true}

// contactNames contains words in the names of arguments that are an address or a telephone number of a person, and
// contactKinds the other words that such a name may have.
var (
	contactNames = map[string]bool{"email": true, "emails": true, "mail": true, "phone": true, "phones": true, "mobile": true}
	contactKinds = map[string]bool{"work": true, "home": true, "business": true, "number": true, "address": true, "primary": true}
)

// Decides reports whether the package judges calls to the tool. It does so if the tool has an effect or fetches an
// address.
func (t *Tool) Decides() bool { return t.Effect || t.fetching }

// lists reports whether the tool returns a list of objects.
func (t *Tool) lists() bool {
	first, _, _ := strings.Cut(strings.TrimSpace(t.Description), " ")
	return slices.ContainsFunc(append(nameParts(t.Name), strings.ToLower(strings.TrimSuffix(first, "s"))), func(p string) bool { return listing[p] })
}

func hasPart(name string, of map[string]bool) bool {
	for _, p := range nameParts(name) {
		if of[p] {
			return true
		}
	}
	return false
}

// nameParts splits a name such as send_email or sendEmail into lower-case words.
func nameParts(name string) (parts []string) {
	var cur []rune
	flush := func() {
		if len(cur) > 0 {
			parts = append(parts, string(cur))
			cur = nil
		}
	}
	small := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			small = false
			continue
		case unicode.IsUpper(r) && small:
			flush()
		}
		small = unicode.IsLower(r)
		cur = append(cur, unicode.ToLower(r))
	}
	flush()
	return parts
}

// leaf is one value of the arguments.
type leaf struct {
	name    string // the name of the innermost member that contains the value
	pointer string
	value   []byte
	role    role
	read    *words // nil until they are needed, because most long values are never compared with a text
}

// words returns the tokens of the value.
func (l *leaf) words() *words {
	if l.read == nil {
		l.read = wordsOf(l.value)
	}
	return l.read
}

// key returns the key of the value's words.
func (l *leaf) key() uint64 {
	if l.read == nil {
		return keyOf(l.value, new(view.View))
	}
	return l.read.key()
}

// inFilter reports whether a value is a condition inside an argument with the name "filter".
func (l *leaf) inFilter() bool {
	return strings.Contains(l.pointer, "/filter/") && !hasPart(l.pointer, filterActions)
}

// filterActions contains words in the names of filters that do something, such as those of a mailbox.
var filterActions = map[string]bool{"to": true, "forward": true, "action": true, "actions": true}

const (
	maxLeaves = 2000
	maxName   = 2 // maximum number of words in the name of a destination
)

// leaves returns all values of the arguments, each with its role.
func (t *Tool) leaves(arguments []byte) (list []leaf) {
	var visit func(pointer, name string, p property, value []byte, depth int)
	visit = func(pointer, name string, p property, value []byte, depth int) {
		if len(value) == 0 || len(list) > maxLeaves {
			return
		}
		if len(list) == maxLeaves || depth > maxNested {
			list = append(list, leaf{name: name, pointer: pointer, value: value, role: excess, read: new(words)})
			return
		}
		switch value[0] {
		case '{':
			rawjson.Members(value, func(member string, v jsontext.Value) {
				visit(pointer+"/"+member, member, p.member(member), v, depth+1)
			})
		case '[':
			rawjson.Elements(value, func(v jsontext.Value) { visit(pointer, name, p.element(), v, depth+1) })
		case 't', 'f', 'n':
		default:
			text, ok := rawjson.Text(value)
			if !ok {
				text = string(value)
			}
			if text == "" {
				return
			}
			l := leaf{name: name, pointer: pointer, value: []byte(text)}
			l.role = t.role(&l, p, value[0] != '"')
			if l.role == destination && bytes.ContainsAny(l.value, ",; \n") {
				list = append(list, several(l)...)
				return
			}
			list = append(list, l)
		}
	}
	visit("", "", t.schema, arguments, 0)
	return list
}

// several splits a string that contains a list of addresses, which may include destinations of other kinds. It returns
// nil for other strings.
func several(l leaf) (list []leaf) {
	found := addresses(l.value)
	if len(found) == 0 {
		return []leaf{l}
	}
	rest := l.value
	for _, value := range found {
		one := l
		one.value, one.read = value, nil
		list = append(list, one)
		rest = bytes.Replace(rest, value, []byte(" "), 1)
	}
	if len(found) >= maxAddresses {
		l.role = excess
		return append(list, l)
	}
	if digits(rest) >= minNumber {
		l.value = bytes.Trim(rest, " ,;\n<>")
		l.read = nil
		list = append(list, l)
	}
	return list
}

// These patterns recognize the kind of a value by the form of the value, whatever the name of its argument is.
var (
	emailForm = regexp.MustCompile(`[\p{L}\p{N}._%+\-]+@[\p{L}\p{N}\-]+(?:\.[\p{L}\p{N}\-]+)+`)
	urlForm   = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.\-]{1,20}://[^\s"'<>]+|\bwww\.[^\s"'<>]+`)
	dateForm  = regexp.MustCompile(`^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|^\d{1,2}:\d{2}`)
)

// addresses returns the e-mail addresses and URLs in a text.
func addresses(text []byte) (found [][]byte) {
	for field := range bytes.FieldsSeq(text) {
		if len(found) >= maxAddresses {
			break
		}
		if bytes.IndexByte(field, '@') >= 0 {
			found = append(found, emailForm.FindAll(field, maxAddresses)...)
		}
		if bytes.Contains(field, []byte("://")) || bytes.Contains(field, []byte("www.")) {
			found = append(found, urlForm.FindAll(field, maxAddresses)...)
		}
	}
	return found
}

// maxAddresses is the maximum number of addresses that are found in one text.
const maxAddresses = 100

// The limits of the search for account numbers in a text.
const (
	maxAccounts = 200
	maxAccount  = 36 // length with spaces
)

// accounts returns the parts of a text that look like an account number or a phone number: digits in groups, or a
// country code with a checksum, followed by groups.
func accounts(text []byte) (found [][]byte) {
	for i := 0; i < len(text) && len(found) < maxAccounts; i++ {
		if folded[text[i]] == 0 || i > 0 && folded[text[i-1]] != 0 {
			continue
		}
		rest := text[i:min(len(text), i+maxAccount)]
		n, isIBAN := 0, len(rest) > 4 && folded[rest[1]] != 0 && digits(rest[:2]) == 0 && digits(rest[2:4]) == 2
		for at := 0; at < len(rest); at++ { // n is the end of the last group that contains a digit
			c := rest[at]
			word := folded[c] != 0
			letters := isIBAN && word && at > 5 && rest[at-1] == ' ' && digits(rest[at:min(len(rest), at+4)]) == 0
			if word && !isIBAN && (c < '0' || c > '9') || letters || !word && c != ' ' && (isIBAN || c != '-') {
				break
			}
			if '0' <= c && c <= '9' {
				n = at + 1
			}
		}
		if part := rest[:n]; n >= 8 && !dateForm.Match(part) {
			found = append(found, part)
			i += n - 1
		}
	}
	return found
}

// digits returns the number of ASCII digits in a token.
func digits(token []byte) (n int) {
	for _, c := range token {
		if '0' <= c && c <= '9' {
			n++
		}
	}
	return n
}

// receives reports whether a part of a name marks the value as a recipient, such as "account" in account_number or
// "chat" in chat_id.
func receives(name string) bool {
	return slices.ContainsFunc(nameParts(name), func(part string) bool { return roleOf[part] == destination || part == "chat" })
}

// role derives the meaning of an argument from its form, its name and its schema.
func (t *Tool) role(l *leaf, p property, number bool) role {
	named := roleOf[strings.ToLower(l.name)]
	parts := nameParts(l.name)
	if named == other {
		for _, part := range parts { // in a name of several words, the last word decides
			if r, ok := roleOf[part]; ok {
				named = r
			}
		}
	}
	long := len(l.value) > maxAtom || l.words().len() > maxAtomTokens && bytes.ContainsAny(l.value, " \n")
	isKey := !t.Network && strings.HasSuffix(strings.ToLower(l.name), "id") && digits(l.value) == len(l.value) // identifies an object
	switch {
	case len(p.Enum) > 0 && !t.onPage:
		return option
	case len(p.Enum) > 0, t.onPage && inPage[l.name] && (l.name != "uid" || elementNumber.Match(l.value)),
		t.inBrowser && l.name == "type", (l.name == "ref" || l.name == "target") && pageReference.Match(l.value):
		return choice
	case named == code:
		return code
	case t.verbs&(deleting|changing) != 0 && l.inFilter():
		return other // it selects from the user's data
	case named == prose, long && named != destination && named != path:
		return prose
	case named == identifier && receives(l.name) && (bytes.IndexByte(l.value, '@') > 0 || len(accounts(l.value)) > 0 && !isKey):
		return destination // for example the number of the receiving account
	case named == identifier && !bytes.HasPrefix(l.value, []byte("http")):
		return identifier
	case p.Format == "email" || p.Format == "uri":
		return destination
	case len(addresses(l.value)) > 0 && bytes.IndexByte(l.value, '\n') < 0:
		if text := bytes.TrimSpace(l.value); named != destination && t.Effect && !t.Network && len(addresses(text)[0]) < len(text) {
			return prose // the address is part of a text that the tool keeps
		}
		return destination
	case named == moment || p.Format == "date" || p.Format == "date-time" || dateForm.Match(l.value):
		return moment
	case named == destination && l.words().len() > maxName && !bytes.ContainsRune(l.value, '@') && len(accounts(l.value)) == 0:
		return other // a value of many words, for example a postal address
	case named == amount, number && named == other:
		return amount
	case named == destination && number, named == identifier:
		return identifier
	}
	return named
}
