package secret

import (
	"bytes"
	"slices"
	"strings"
)

// amend changes or drops the gitleaks rules that are listed in changedRules. It also adds ambit's own rules.
func amend(rules []*Rule) []*Rule {
	var out []*Rule
	for _, r := range rules {
		if regex, ok := changedRules[r.ID]; ok {
			if regex == "" {
				continue
			}
			r.Regex = regex
		}
		out = append(out, r)
	}
	return append(out, ownRules()...)
}

// named returns the expression for the most common kind of rule. It matches a name, an operator and a value.
func named(name, value string) string {
	return `(?i)[\w.-]{0,50}?(?:` + name + `)(?:[ \t\w.-]{0,20})[\s'"]{0,3}` + operator + `(` + value + `)` + ending
}

// token returns the expression for a value that can be recognized without a name.
func token(value string) string { return `\b(` + value + `)` + tail }

// tail is an expression for the end of a token: a character that cannot be part of a token, or the end of the text.
const tail = `(?:[^\w+/=-]|$)`

// changedRules maps the id of a gitleaks rule to a new expression. An empty expression drops the rule.
var changedRules = map[string]string{
	// Drop these rules, because gitleaks applies them only to certain files.
	"hashicorp-tf-password": "", "freemius-secret-key": "", "nuget-config-password": "",
	// These expressions omit the scheme and the first part of the host name, which are not needed.
	"microsoft-teams-webhook": `\.webhook\.office\.com/webhookb2/[a-z0-9]{8}-(?:[a-z0-9]{4}-){3}[a-z0-9]{12}@` +
		`[a-z0-9]{8}-(?:[a-z0-9]{4}-){3}[a-z0-9]{12}/IncomingWebhook/[a-z0-9]{32}/` +
		`[a-z0-9]{8}-(?:[a-z0-9]{4}-){3}[a-z0-9]{12}`,
	"slack-webhook-url": `hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{43,56}`,
	// The separator is the only character that is the same in all these tokens.
	"facebook-access-token": `(?i)\b(\d{15,16}\|[0-9a-z\-_]{27,40})` + ending +
		`|\b(\d{15,16}%[0-9a-z\-_]{27,40})` + ending,
	// Without its prefix, this token looks like any SHA-1 hash, so the name must be nearby.
	"sourcegraph-access-token": `(?i)\b(sgp_(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40})\b|` +
		named("sourcegraph", `[a-f0-9]{40}`)[len("(?i)"):],
}

// ownRules returns the rules that ambit adds. Some of them replace gitleaks rules that are too narrow, because the
// provider changed its tokens and only the prefix is still the same.
func ownRules() []*Rule {
	rules := []*Rule{
		{
			ID: "url-password", precheck: hasUserinfo, Allow: placeholders,
			Regex: `://[^\s:/?#@"'<>\[\]{}]{0,128}:([^\s/?#@"'<>\[\]{}$*]{3,256})@[\w.-]`,
		},
		{
			ID: "authorization-header", Allow: placeholders, Entropy: 2.5,
			Regex: `(?i)\bauthorization["']?[ \t]{0,3}[:=][ \t]{0,3}["']?` +
				`(?:(?:bearer|token|apikey|basic|bot)[ \t]{1,3})([\w.~+/=-]{16,1000})`,
		},
		{
			ID: "bearer-token", Allow: placeholders, Entropy: 3.5,
			Regex: `\b[Bb]earer[ \t]{1,3}([\w~+/-]{8,1000}\.?[\w.~+/-]{12,1000}={0,2})` + tail,
		},
		{
			ID: "aws-secret-access-key", Entropy: 4,
			Regex: named(`aws[_.-]?(?:secret|session)?[_.-]?(?:access)?[_.-]?(?:key|token)|`+
				`secret[_-]?access[_-]?key|secretaccesskey`, `[a-z0-9/+]{40}`),
		},
		{ID: "azure-storage-key", Regex: `(?i)\baccountkey=([a-z0-9+/]{86}==)`},
		{ID: "azure-shared-access-key", Regex: `(?i)\bsharedaccess(?:key|signature)=([a-z0-9+/%=&:._-]{20,512})`},
		{ID: "azure-sas-signature", Regex: `[?&]sig=([A-Za-z0-9%+/]{40,90}(?:=|%3[Dd])?)` + tail, Entropy: 3.5},
		{
			ID: "connection-string-password", Allow: placeholders, precheck: hasSemicolon,
			Regex: `(?i)(?:;|\b)(?:password|pwd)=([^;\s"'$<{*]{4,128});`,
		},
		{ID: "google-oauth-secret", Regex: token(`GOCSPX-[\w-]{28}`)},
		{ID: "google-oauth-token", Regex: `\b(ya29\.[\w-]{20,1000})`},
		{ID: "google-refresh-token", Regex: token(`1//0[\w-]{40,150}`)},
		{ID: "discord-bot-token", Regex: named(`discord|bot[_-]?token`, `[MNO][a-z0-9]{23,27}\.[\w-]{6}\.[\w-]{27,38}`)},
		{ID: "telegram-bot-token", Regex: `\b(\d{8,10}:AA[\w-]{33})` + tail},
		{ID: "putty-private-key", Regex: `PuTTY-User-Key-File-[23]:[\s\S]{0,1000}?Private-Lines:[\s\S]{20,1000}?` +
			`Private-(?:MAC|Hash)`},
		{
			ID: "netrc-password", Allow: placeholders,
			Regex: `\bmachine[ \t\n]{1,4}[\w.-]{1,128}[ \t\n]{1,4}login[ \t\n]{1,4}\S{1,128}` +
				`[ \t\n]{1,4}password[ \t\n]{1,4}(\S{4,256})`,
		},
		{ID: "npm-auth-token", Allow: placeholders, Regex: `_authToken[ \t]{0,3}=[ \t]{0,3}["']?([\w.+/=-]{16,512})`},
		{ID: "docker-auth", Regex: `"auth"[ \t]{0,3}:[ \t\n]{0,3}"([A-Za-z0-9+/]{20,512}={0,2})"`, Entropy: 3.5},
		{ID: "paypal-braintree-token", Regex: `\b(access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32})` + tail},
		{ID: "zapier-webhook", Regex: `hooks\.zapier\.com/hooks/catch/([0-9]{4,12}/[0-9a-z]{5,12})`},
		{ID: "discord-webhook", Regex: `discord(?:app)?\.com/api/webhooks/([0-9]{15,22}/[\w-]{60,80})`},
	}
	for id, value := range tokens {
		rules = append(rules, &Rule{ID: id, Regex: token(value), Entropy: 3, Allow: notTokens})
	}
	slices.SortFunc(rules, func(a, b *Rule) int { return strings.Compare(a.ID, b.ID) })
	return rules
}

// tokens maps rule ids to expressions for values that can be recognized by their prefix.
var tokens = map[string]string{
	"anthropic-token":           `sk-ant-(?:oat|ort|sid|admin|api)[0-9]{2}-[\w-]{80,110}AA`,
	"openai-key":                `sk-(?:proj|svcacct|admin|None)-[\w-]{32,250}`,
	"openai-legacy-key":         `sk-[A-Za-z0-9]{48}`,
	"deepseek-key":              `sk-[0-9a-f]{32}`,
	"openrouter-key":            `sk-or-v1-[0-9a-f]{64}`,
	"groq-key":                  `gsk_[A-Za-z0-9]{48,60}`,
	"xai-key":                   `xai-[A-Za-z0-9]{60,100}`,
	"replicate-token":           `r8_[A-Za-z0-9]{37}`,
	"huggingface-token":         `hf_[A-Za-z0-9]{30,40}`,
	"langsmith-key":             `lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}`,
	"pinecone-key":              `pcsk_[A-Za-z0-9]{5,8}_[A-Za-z0-9]{50,70}`,
	"tavily-key":                `tvly-(?:dev-)?[A-Za-z0-9]{28,40}`,
	"fireworks-key":             `fw_[A-Za-z0-9]{22,40}`,
	"elevenlabs-key":            `sk_[0-9a-f]{48}`,
	"nvidia-key":                `nvapi-[\w-]{60,80}`,
	"github-token":              `gh[pousr]_[A-Za-z0-9]{30,255}`,
	"github-fine-grained-token": `github_pat_\w{22,255}`,
	"gitlab-token":              `gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-[\w.-]{20,300}`,
	"bitbucket-token":           `ATBB[A-Za-z0-9]{24,40}`,
	"tencent-key":               `AKID[A-Za-z0-9]{32}`,
	"docker-token":              `dckr_(?:pat|oat)_[\w-]{24,40}`,
	"doppler-token":             `dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}`,
	"fly-token":                 `fo1_[\w-]{43}`,
	"fly-macaroon":              `fm[12][ar]?_[A-Za-z0-9+/]{60,1000}={0,3}`,
	"heroku-key":                `HRKU-[\w-]{30,70}`,
	"hashicorp-vault-token":     `hv[sbr]\.[\w-]{24,300}`,
	"linear-key":                `lin_(?:api|oauth)_[A-Za-z0-9]{32,64}`,
	"figma-token":               `fig[dou]_[\w-]{40,60}`,
	"notion-token":              `(?:secret|ntn)_[A-Za-z0-9]{43,50}`,
	"new-relic-key":             `NR(?:AK|II|JS|RA|IQ|AL)-[A-Za-z0-9_-]{19,40}`,
	"sendgrid-key":              `SG\.[\w-]{16,32}\.[\w-]{32,64}`,
	"resend-key":                `re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}`,
	"slack-token":               `xox[abceoprs]-[0-9]{8,14}-[0-9]{8,14}-[A-Za-z0-9-]{16,300}`,
	"stripe-key":                `(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{16,247}`,
	"stripe-webhook-secret":     `whsec_[A-Za-z0-9+/]{24,64}={0,2}`,
	"square-token":              `(?:EAAA|sq0[a-z]{3}-)[\w-]{22,60}`,
	"shopify-token":             `shp(?:at|ca|pa|ss|ua)_[0-9a-fA-F]{32}`,
	"supabase-token":            `sb(?:p|_secret|_publishable)_[A-Za-z0-9_-]{31,64}`,
	"neon-key":                  `napi_[a-z0-9]{60,70}`,
	"pypi-token":                `pypi-[\w-]{50,1000}`,
	"cratesio-token":            `cio[A-Za-z0-9]{32}`,
	"tailscale-key":             `tskey-[a-z]{2,10}-[A-Za-z0-9]{10,20}(?:CNTRL)?-[A-Za-z0-9]{20,64}`,
	"contentful-token":          `CFPAT-[\w-]{43}`,
	"mapbox-secret":             `sk\.eyJ[\w-]{60,120}\.[\w-]{20,24}`,
	"circleci-token":            `CCIPAT_[A-Za-z0-9]{20,24}_[0-9a-f]{40}`,
	"buildkite-token":           `bk(?:ua|at|ct)_[0-9a-f]{40}`,
	"posthog-key":               `phx_[A-Za-z0-9]{40,60}`,
}

// hasUserinfo reports whether a URL may contain a password. The text begins with the "://" of the URL.
func hasUserinfo(text []byte) bool {
	colon := false
	for i, c := range text[len("://"):min(len(text), 512)] {
		switch c {
		case ':':
			colon = colon || i >= 0
		case '@':
			return colon
		case '/', '?', '#', ' ', '\n', '"', '\'', '<', '>', '\\', ')', '`':
			return false
		}
	}
	return false
}

// hasSemicolon reports whether a semicolon follows soon, as in a connection string.
func hasSemicolon(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), 160)], ';') > 0
}

// notTokens is an allowlist for values without digits and values that end in "example". They are not tokens.
var notTokens = []Allow{{Regexes: []string{`^\D+$|(?i)example$`}}}

// placeholders is an allowlist for values that people write instead of a secret.
var placeholders = []Allow{{Regexes: []string{
	`(?i)^(?:[\w-]*pass(?:word|wd|phrase)?|secret|user(?:name)?|[\w-]*token|x{3,}|changeme|example|` +
		`your[_-].*|my[_-].*|<.*|\.{3,}|\*+|\[?redacted.*|\$.*|\{.*|%[sv].*)$`,
}}}
