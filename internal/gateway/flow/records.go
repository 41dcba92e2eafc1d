package flow

import "strings"

// A change that stays in the user's own space and can be undone does little harm. The functions in this file recognize
// such changes, judged by the words in the tool's name or, if the name has no known verb, in its description.

// kind says what a tool keeps.
type kind int

const (
	otherKind kind = iota
	record         // something that the user keeps, such as a note or a task
	workItem       // something that other people see, such as an issue or a comment
)

// recordVerbs contains verbs that create or change a record. A tool with another verb of these families, such as
// "merge" or "share", can do more.
var recordVerbs = wordSet(`add append create draft edit insert log modify move note record rename save update write transition`)

// recordNouns and workNouns contain words for records and work items. riskyNouns contains words for objects that send,
// run, pay or give access.
var (
	recordNouns = wordSet(`note task todo row cell sheet spreadsheet entity observation memory`)
	workNouns   = wordSet(`block card comment doc document epic issue label link milestone page pull request story subtask ticket worklog`)
	riskyNouns  = wordSet(`access account command customer deployment dns domain file filter function grant hook invoice job key mail
member message order payment permission policy refund release role rule schedule script secret subscription team token
transfer user webhook workflow`)
)

// kindOf returns what a tool keeps. The words are those of the tool's name or description.
func (t *Tool) kindOf(words []string) (k kind) {
	if !t.Effect || t.Destructive || t.onPage {
		return otherKind
	}
	keeps := false
	for _, word := range words {
		one := strings.TrimSuffix(word, "s")
		switch {
		case riskyNouns[one]:
			return otherKind
		case workNouns[one]: // also decides if the name contains a record, as in add_comment_to_page
			k = workItem
		case recordNouns[one]:
			k = max(k, record)
		case recordVerbs[word]:
			keeps = true
		case table.of([]byte(word))&^fetching != 0:
			return otherKind
		}
	}
	if !keeps {
		return otherKind
	}
	return k
}

// stages reports whether a tool of this machine takes only the names of files, to add them to a commit.
func (t *Tool) stages() bool {
	return !t.Network && !t.Destructive && t.adds() && !t.sends() && hasPart(t.Name, stagingVerbs)
}

var stagingVerbs = wordSet(`add stage`)
