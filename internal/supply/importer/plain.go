package importer

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// isPlainSetting reports whether the value of a variable or header is an ordinary setting, judging by both the name and
// the value. A number, a switch, a path, or a URL without a credential is an ordinary setting. A word is an ordinary
// setting if the variable has the name of a setting, such as REGION.
func (b *builder) isPlainSetting(name, value string) bool {
	switch {
	case secretName(name) && !secretlike.PlainValue(value), secretlike.Find(value).Found(), strings.ContainsAny(value, "$"):
		return false
	case harmless(value), decimal.MatchString(value), numbers.MatchString(value) && len(value) < 12:
		return true
	case strings.Contains(value, "://"):
		return b.plainURL(value)
	case isPath(value):
		return !b.risky(value) && !slices.ContainsFunc(strings.FieldsFunc(value, isPathSeparator), mixed)
	case hasPassword(value):
		return false
	case settingName.MatchString(name):
		return len(value) <= 200 && plainText.MatchString(value) &&
			!slices.ContainsFunc(strings.FieldsFunc(value, isWordSeparator), unusualWord)
	}
	return plainWords[strings.ToLower(value)]
}

// plainURL reports whether a URL contains nothing that could be a secret: no password, no key in its path, and no
// parameter that could be a secret.
func (b *builder) plainURL(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" || secretlike.Find(raw).Found() || hasPassword(raw) || strings.ContainsAny(raw, "${} ") {
		return false
	}
	if u.User != nil && (strings.HasPrefix(u.Scheme, "http") || unusualWord(u.User.Username())) {
		return false
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(value)
		if pair != "" && (err != nil || !b.isPlainParameter(name, text)) {
			return false
		}
	}
	return !slices.ContainsFunc(strings.Split(u.Path, "/"), isKeyInPath) && !b.containsWithheld(raw)
}

// isKeyInPath reports whether a part of a URL's path looks like a key.
func isKeyInPath(part string) bool {
	return tokenLike(part) || slices.ContainsFunc(strings.FieldsFunc(part, isSeparator), keyLike)
}

// isPlainParameter reports whether a parameter in the query of a URL cannot be a secret.
func (b *builder) isPlainParameter(name, value string) bool {
	return !secretlike.QueryName(name) && queryName.MatchString(name) && !doubtName.MatchString(name) &&
		!b.risky(value) && queryValue.MatchString(value)
}

// unusualWord reports whether a part of a value looks random: it mixes letters and digits, or its letters do not form
// a word.
func unusualWord(word string) bool {
	return !isPlainWord(word) && !decimal.MatchString(word) && !datePart.MatchString(word) && !shortPart.MatchString(word) &&
		(strings.ContainsAny(word, "0123456789") || !pronounceable(word, 24, 1+len(word)/8))
}

// passphrase reports whether a word of a command could be a password without digits. The function risky handles words
// with digits. A known word, or a short and pronounceable word such as stdio or inventory, is not a password.
func passphrase(arg string) bool {
	if isPath(arg) || fileName.MatchString(arg) || packageSpec.MatchString(arg) || harmless(arg) ||
		isPlainWord(arg) || strings.ContainsAny(arg, "/@,:*0123456789") || hostName.MatchString(arg) {
		return false
	}
	words := strings.FieldsFunc(arg, isWordSeparator)
	switch {
	case isCommonPassword(strings.Join(words, "")), slices.ContainsFunc(words, isCommonPassword):
		return true
	case len(words) > 3 && (strings.Contains(arg, " ") || !slices.ContainsFunc(words, isPlainWord)):
		return !sentence.MatchString(arg)
	}
	return slices.ContainsFunc(words, func(w string) bool {
		return !isPlainWord(w) && !pronounceable(w, 10, max(0, 1-len(w)/9))
	})
}

func isPlainWord(word string) bool      { return plainWords[strings.ToLower(word)] }
func isCommonPassword(word string) bool { return commonPasswords[strings.ToLower(word)] }

// pronounceable reports whether a text could be a word of a natural language, or a few joined words, as in readOnly.
// The text can have at most maxLetters letters. At most maxRare pairs of letters can be rare in English.
func pronounceable(word string, maxLetters, maxRare int) bool {
	if len(word) > maxLetters || !letters.MatchString(word) || oddCase.MatchString(word) {
		return false
	}
	word = strings.ToLower(word)
	vowels := strings.Count(word, "a") + strings.Count(word, "e") + strings.Count(word, "i") + strings.Count(word, "o") +
		strings.Count(word, "u") + strings.Count(word, "y")
	for i := range len(word) - 1 {
		if !strings.Contains(pairs[word[i]-'a'], word[i+1:i+2]) {
			maxRare--
		}
	}
	return len(word) <= 3 || maxRare >= 0 && vowels*6 >= len(word) && vowels*4 <= len(word)*3
}

// pairs contains, for each letter, the letters that often follow it. Together, these pairs are 96 % of the pairs of
// letters in English words.
var pairs = strings.Fields("bcdfgiklmnprstuvwxy abceilorsuy acdeghiklmoprstuy abcdefgilmnorsuy abcdefghiklmnopqrstuvwxy " +
	"adefilorstu aceghilmnorsu aeiortuy abcdefgklmnoprstvxz aeou aeios abcdefilopstuvy abcdeilmopsu abcdefghiklmnoprstuv " +
	"abcdefgiklmnoprstuvwx acehiloprstuy u abcdefgiklmnoprstuvy acefghiklmnoprstuwy acdefghilmoprstuwy abcdefgilmnoprst " +
	"aeio acehinors aceipt imnpst aei")

func isPathSeparator(r rune) bool { return strings.ContainsRune(`/\._- `, r) }
func isWordSeparator(r rune) bool { return strings.ContainsRune("-_., :/@+*|;=", r) }

var (
	letters = regexp.MustCompile(`^[A-Za-z]+$`)
	// oddCase matches words with capital letters in unusual places. The usual places are the beginning of the word, and
	// the beginning of a part with at least three letters.
	oddCase   = regexp.MustCompile(`[a-z][A-Z]+[a-z]{0,1}([A-Z]|$)|[A-Z]{2,}[a-z]+[A-Z]|^[a-z]{1,2}[A-Z]{2}`)
	decimal   = regexp.MustCompile(`^[+-]?\d{1,5}(\.\d{1,6})*(ms|s|m|h|d|k|kb|mb|gb|[KMG]i?B?|%|px)?$`)
	datePart  = regexp.MustCompile(`^(19|20)\d{4}(\d\d)?$`)
	shortPart = regexp.MustCompile(`^(v?\d{1,4}[a-z]{0,2}|[A-Za-z]{1,10}\d{1,2}|[a-z]{1,8}\d[a-z]{1,2})$`)
	plainText = regexp.MustCompile(`^-{0,2}[A-Za-z0-9*][\w .,:/@+*|;()=-]*$`)
	hostName  = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|org|net|io|dev|ai|co|app|edu|gov|local|internal|lan|` +
		`localhost|[a-z]{2})$`)
	sentence = regexp.MustCompile(`(?i)(^| )(a|an|the|of|to|for|is|are|with|your?)( |$)|[A-Z][a-z]+ .*[.!?]$`)
	// settingName matches the names of variables and headers that are settings if their value is plain.
	settingName = regexp.MustCompile(`(?i)(^|[_-])(region|zone|location|model|models|level|mode|env|environment|profile|` +
		`host|hostname|port|ports|transport|db|database|dbname|schema|table|collection|bucket|dataset|namespace|cluster|instance|` +
		`project|workspace|org|organization|team|lang|language|locale|tz|timezone|format|type|version|encoding|theme|browser|` +
		`engine|provider|backend|driver|dialect|temperature|timeout|limit|max|min|size|count|depth|ttl|interval|retries|debug|` +
		`verbose|enabled|disabled|name|domain|currency|country|city|units|tools|toolsets|features|scope|scopes|path|dir|` +
		`directory|folder|file|root|url|uri|endpoint|base|user|username|agent|accept|style|color|log|filter|tags?|labels?|` +
		`extensions?|prefix|suffix|protocol|platform|runtime|strategy|policy|edition|tier|device|resolution|args?|options?|warehouse|channel|index|role|(lang|country)_code|model_id|` +
		`channels|repo|repository|owner|branch|dimension|dimensions|width|height|server|brokers|threshold)$|` +
		`(?i)(mode|host|port|database|region|level|dir|path|proxy)$|` +
		`(?i)^(max|min|enable|disable|use|allow|default|log|debug|is|num)[_-]`)
)

// plainWords contains words that are settings under any name, and words in the names of arguments and tools.
var plainWords = setOf(`local remote dark light auto default all any main master dev prod staging testing tests sqlite
	postgres postgresql mysql mariadb mongodb redis memory file files disk cloud docker node python stdio sse http https
	streamable streamable-http streamablehttp serve server start run mcp mcp-server client read write readonly read-only
	readwrite admin public private internal basic full minimal chromium chrome firefox webkit headless json yaml toml text
	markdown html utf8 utf-8 ascii quiet silent verbose debug info warn warning error trace fatal critical none null stable
	latest next beta alpha english german french spanish openai anthropic google azure aws gcp ollama github gitlab bitbucket
	production development test data project projects my api app web db database store storage service tool tools config
	settings example examples docs notes search research agent assistant playwright puppeteer kubernetes javascript typescript
	elasticsearch opensearch confluence bigquery snowflake databricks cloudflare filesystem documentation development
	transactions repositories notifications subscriptions organization integration integrations`)

// commonPasswords contains words that are frequent passwords and hardly ever arguments.
var commonPasswords = setOf(`password passw passwort letmein welcome monkey dragon sunshine princess football baseball
	iloveyou trustno shadow superman batman master michael qwerty qwertyuiop asdfghjkl zxcvbnm swordfish hunter opensesame
	changeme secret topsecret abracadabra starwars whatever freedom ninja mustang jordan harley ranger buster soccer hockey
	killer george charlie andrew michelle jessica pepper ginger cheese summer winter spring autumn correcthorse
	correcthorsebatterystaple horse battery staple letmeinnow supersecret mypassword`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}
