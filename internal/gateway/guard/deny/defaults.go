package deny

import "strings"

// gap is an expression for the characters between two words. It also matches the empty string, because an attacker can
// leave out the spaces.
const gap = `[\W_]*?`

// defaultReach is the maximum length of a match of a default pattern, in bytes.
const defaultReach = 200

// upTo returns an expression that matches zero to n arbitrary words.
func upTo(n string) string { return `(?:[\w']+[\W_]+){0,` + n + `}?` }

// withGaps replaces each space in a pattern with the constant gap.
func withGaps(words string) string { return strings.ReplaceAll(words, " ", gap) }

// Defaults returns patterns that detect prompt injection. The patterns match phrases that have no legitimate use in the
// arguments of a tool. The name of a pattern describes the aim of its phrases. Each expression should begin with a
// distinctive word, so that the search can reject most text early.
func Defaults() []Pattern {
	var out []Pattern
	add := func(name string, words ...string) {
		out = append(out, Pattern{Name: name, Regex: `\b` + strings.Join(words, gap), Reach: defaultReach})
	}
	const (
		drop = `(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|ing)|` +
			`bypass(?:ing)?|neglect|overlook|discard)`
		earlier  = `(?:previous|prior|above|preceding|earlier|foregoing|initial|original|former|system|pre-?existing)`
		orders   = `(?:instruction|direction|directive|guideline|prompt|rule|command|order|constraint)s?\b`
		freedoms = `(?:jail-?broken|unrestricted|unfiltered|uncensored)\b`
		limits   = `(?:restriction|limitation|rule|filter|guideline|polic(?:y|ie)|ethic)s?\b`
	)
	// The constant matches "above" only where it means the earlier text of the conversation, so it does not match "all
	// files above 10 MB".
	const above = `above(?:\s{0,2}(?:[^\w\s]|\z)|` + gap + `(?:and|but|text|word|starting|beginning|verbatim|exactly|this)\b)`
	add("override_instructions", drop, upTo("4")+earlier, upTo("3")+orders)
	add("override_instructions", drop, upTo("3")+orders, withGaps(`you (?:were|have been) (?:given|told)\b`))
	add("override_instructions", drop, upTo("1")+`your`, upTo("1")+`(?:safety|security|ethical|content)`,
		`(?:guideline|rule|instruction|polic(?:y|ie)|filter|protocol)s?\b`)
	for _, not := range []string{drop, `do(?:n\W?t|` + gap + `not)` + gap + `(?:follow|obey)`} {
		add("override_instructions", not, `(?:what`+gap+`)?the`, `user(?:['’]?s)?`,
			`(?:asked|said|wants|wrote|requests?|instructions?|orders?|questions?)\b`)
	}
	add("override_instructions", `your`, upTo("1")+`(?:instructions|directives|guidelines)`,
		withGaps(`(?:have changed|have been (?:changed|replaced|updated|cancelled|revoked)|`+
			`are (?:outdated|void|cancelled|no longer valid))\b`))
	add("override_instructions", drop, `(?:all|any|every|everything)`,
		upTo("3")+`(?:instructions?|directives?|guidelines?|prompts?|programming|restrictions)\b`)
	add("override_instructions", drop, `(?:everything|all|what)`,
		upTo("4")+`(?:before|`+above+`|previously|(?:were|was|been)`+gap+`told|so`+gap+`far)\b`)

	// The same orders in German, French, Spanish, Italian, Portuguese and Dutch. The text that is searched has no accents.
	// The words at the beginning of an expression have different first letters, so that the search finds them quickly.
	const (
		ordersIn = `(?:anweisung|anordnung|instruktion|vorgabe|regel|befehl)e?n?\b|(?:instruction|consigne|directive|` +
			`regle|ordre)s?\b|(?:instruccion|orden|indicacion|directric|regla|instrucao|instruco|diretriz|diretrize|regra|` +
			`comando)(?:e?s)?\b|(?:istruzion|direttiv|regol|comand|ordin)[aeio]\b|(?:instructie|opdracht|regel)(?:s|en)?\b`
		earlierIn = `(?:vorherig|vorig|bisherig|fruher|obig|vorangegangen|ursprunglich|precedent|anterieur|anterior|` +
			`previ[ao]|initial|inicia|inizial|original|originel|eerder|voorgaand|bovenstaand)\w*`
	)
	for _, dropIt := range []string{
		`(?:ignor(?:a|ad|ar|are|ate|e|em|en|er|ez|ier|iere|ieren|iert)|verg(?:iss|esst|essen|eet)|missachten?|` +
			`oubli(?:e|er|ez)|dimentic(?:a|are|ate|hi)|negligez|trascura(?:re|te)?)\b`,
		`(?:olvid(?:a|ad|ar|e|en)|desc(?:arta|artar|arte|onsidere)|esque(?:ca|cam|cer)|negeer|verwirf)\b`,
	} {
		add("override_instructions", dropIt, upTo("3")+earlierIn, upTo("1")+`(?:`+ordersIn+`)`)
		add("override_instructions", dropIt, upTo("3")+`(?:`+ordersIn+`)`, upTo("3")+earlierIn)
		add("override_instructions", dropIt, upTo("1")+`(?:alle|samtliche|tou(?:te)?s|tod[ao]s|tutt[ei])`,
			upTo("2")+`(?:`+ordersIn+`)`)
	}

	const prompts = `(?:(?:your|system|hidden|secret|initial|original|pre)` + gap +
		`(?:prompt|pre-?prompt)s?|(?:system|initial|original|hidden|secret|internal|developer)` + gap +
		`(?:message|instruction|rule|guideline|directive)s?)\b`
	for _, verb := range []string{
		`(?:reveal|show|print|repeat|output|display|disclose|leak|expose|dump|recite)`,
		`tell (?:me|us)`, `give (?:me|us)`, `what (?:is|are|was|were)`,
	} {
		whose := `(?:your|the|its|this|all)`
		if verb[:4] == "what" {
			whose = `your` // "what is the system prompt" is a common question
		}
		add("reveal_prompt", withGaps(verb), upTo("2")+whose, upTo("3")+prompts)
		out[len(out)-1].Unless = `(?:\b(?:never|not|cannot)|n['’]t)\s+(?:ever\s+)?\z` // "never reveal your system prompt"
	}
	add("reveal_prompt", `(?:repeat|print|output|write)`,
		upTo("4")+`(?:words|text|everything|sentences|content|instructions)`, `(?:`+above+`|before`+gap+`this\b)`)

	for _, begin := range []string{
		`you are now`, `from now on you`, `act as`, `role-?play as`, `behave (?:as|like)`,
		`pretend (?:to be|you are|that you)`,
	} {
		add("unrestricted_persona", withGaps(begin), upTo("8")+`(?:`+freedoms+`|`+
			withGaps(`(?:without|no|free of|bound by) `)+upTo("2")+limits+withGaps(`|do anything now|developer mode)`))
	}
	add("unrestricted_persona", `anything`, `now\b`, upTo("6")+`(?:`+freedoms+`|dan\b|mode\b)`)
	add("unrestricted_persona", `(?:enable|enter|activate|switch(?:ing)?)`,
		upTo("3")+`(?:developer|god|jail-?break|dan|sudo|unrestricted|unfiltered)`, `mode\b`)

	tokens := func(regex string, reach int) {
		out = append(out, Pattern{Name: "control_tokens", Regex: regex, Reach: reach})
	}
	tokens(`<\|(?:im_start|im_end|im_sep|system|user|assistant|endoftext|`+
		`eot_id|start_header_id|end_header_id|begin_of_text|endofprompt)\|>`, 40)
	tokens(`\[/?INST\]`, 40)
	tokens(`<</?SYS>>`, 40)
	tokens(`</?system[_-]?(?:prompt|message|instructions?|override)>`, 60)
	tokens(`\[(?:system|admin|developer)\s{0,2}(?:message|prompt|override|instructions?)\](?:[^(]|\z)`, 60)
	tokens(`###?\s{0,3}(?:system|new)\s{0,3}(?:prompt|instructions?|message|override)\s{0,3}:`, 60)

	// A system prompt often lists facts that the agent must not reveal to the user, and that is legitimate. These patterns
	// therefore match only orders to hide an action that the same text requests: "do not tell the user about this", but
	// not "do not tell the user the price".
	add("hidden_orders", `(?:new|real|actual|true|overriding|revised)`, `(?:system`+gap+`)?(?:instructions?|directives?)\s{0,2}[:=]`)
	add("hidden_orders", `(?:real|actual|true|overriding)`, `orders\s{0,2}[:=]`)
	add("hidden_orders", `(?:instructions?|directives?)`, withGaps(`from (?:the|your) `)+
		upTo("2")+`(?:developer|admin|administrator|system|creator|operator)s?\s{0,2}[:=]`)
	const (
		tell    = `(?:tell|inform|notify|alert|warn)(?:ing)?`
		mention = `(?:mention|reveal|disclose|disclosing|report|show)(?:ing)?`
		user    = `(?:the|your)` + gap + `(?:user|human|operator|owner)\b`
		did     = `(?:this|it|that|any` + gap + `of` + gap + `(?:this|it|that))`
		deeds   = `(?:action|step|request|message|e?-?mail|call|transfer|transaction|payment|change|operation|task|note)s?`
		youDid  = `(?:that|what)` + gap + `you` + gap + `(?:did|just|sent|made|received|` +
			`are` + gap + `doing|were` + gap + `(?:told|asked)|have` + gap + `(?:done|been|sent|made|received|read))\b`
		end = `\s{0,2}(?:[.!]|\z)`
	)
	for _, not := range []string{
		`do(?:n\W?t|` + gap + `not)`, `never`, `avoid`, `refrain` + gap + `from`, `(?:must|should)` + gap + `not`,
	} {
		add("hidden_orders", not, upTo("2")+mention, withGaps(`(?:that )?you `)+
			`(?:first|read|sent|called|copied|had|need(?:ed)?)\b`)
		add("hidden_orders", not, upTo("2")+`(?:`+
			tell+gap+user+`(?:`+gap+`(?:anything`+gap+`)?(?:about|of)`+gap+did+`\b|`+gap+youDid+`|`+end+`)|`+
			mention+gap+`(?:`+did+`(?:`+gap+deeds+`)?|`+youDid+gap+upTo("3")+`)`+gap+`to`+gap+user+`)`)
	}
	// A negation before these phrases protects the user, as in "never send it without telling the user". Unless excludes
	// such text.
	for _, quietly := range []string{
		withGaps(`without `) + tell + gap + user + `(?:` + gap + `(?:about|of)` + gap + did + `\b|` + end + `)`,
		withGaps(`without `) + mention + gap + did + withGaps(` to `) + user,
		`(?:hide|conceal)` + gap + did + `(?:` + gap + deeds + `)?` + withGaps(` from `) + user,
	} {
		add("hidden_orders", quietly)
		out[len(out)-1].Unless = `\b(?:never|not|cannot|avoid|refrain|rather than|instead of)\b|n['’]t\b`
	}
	return out
}
