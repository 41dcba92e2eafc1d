package diag

import (
	_ "embed"
	"slices"
	"strings"
)

// RuleList is a list of rules in the order of their codes.
type RuleList []*Rule

// ParseRules parses a text with one paragraph for each rule. The first line of a paragraph contains the code, the
// severity and the title. The second line contains the reason. The third line contains the fix, and is missing if the
// fix depends on the manifest. ParseRules panics if the severity is missing or unknown.
func ParseRules(text string) RuleList {
	var rules RuleList
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, body, _ := strings.Cut(paragraph, "\n")
		code, head, _ := strings.Cut(head, " ")
		severity, title, _ := strings.Cut(head, " ")
		rule := &Rule{Code: code, Title: title}
		rule.Why, rule.Fix, _ = strings.Cut(body, "\n")
		if err := rule.Severity.UnmarshalText([]byte(severity)); err != nil {
			panic("rule " + code + ": " + err.Error())
		}
		rules = append(rules, rule)
	}
	return rules
}

// Get returns the rule with the given code. Get panics if the list does not contain the rule.
func (l RuleList) Get(code string) *Rule {
	i := slices.IndexFunc(l, func(r *Rule) bool { return r.Code == code })
	if i < 0 {
		panic("rules.txt has no rule " + code + "; check that the rules are separated by blank lines")
	}
	return l[i]
}

//go:embed rules.txt
var sharedText string

// Shared lists the rules that apply in every dialect. AM0xx rules are about the file, and AM1xx rules are about its
// content.
var Shared = ParseRules(sharedText)

// The shared rules. The file rules.txt explains them.
var (
	TooLarge       = Shared.Get("AM002")
	NotUTF8        = Shared.Get("AM003")
	ByteOrderMark  = Shared.Get("AM004")
	BadJSON        = Shared.Get("AM005")
	BadTOML        = Shared.Get("AM006")
	Comment        = Shared.Get("AM007")
	TrailingComma  = Shared.Get("AM008")
	DuplicateKey   = Shared.Get("AM009")
	TooDeep        = Shared.Get("AM010")
	TooManyValues  = Shared.Get("AM011")
	InexactNumber  = Shared.Get("AM012")
	LoneSurrogate  = Shared.Get("AM013")
	NotObject      = Shared.Get("AM015")
	Empty          = Shared.Get("AM016")
	UnknownDialect = Shared.Get("AM020")
	MixedDialects  = Shared.Get("AM021")
	TooMany        = Shared.Get("AM030")
	WrongType      = Shared.Get("AM101")
	Missing        = Shared.Get("AM102")
	UnknownField   = Shared.Get("AM103")
	NotInEnum      = Shared.Get("AM104")
	EmptyText      = Shared.Get("AM105")
	OutOfRange     = Shared.Get("AM106")
	Repeated       = Shared.Get("AM107")
	Reserved       = Shared.Get("AM108")
	SecretValue    = Shared.Get("AM110")
	HiddenText     = Shared.Get("AM111")
	BadRight       = Shared.Get("AM120")
)
