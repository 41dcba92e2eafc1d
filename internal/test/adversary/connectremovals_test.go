package adversary

// These removals concern DPoP, the lists of each caller, and sign-ins in the console.
func init() {
	removals = append(removals, []removal{
		{"P390", "internal/exec/signin/session.go", `if !slices.ContainsFunc(challenges, isDPoP) {`, `if true {`, "./internal/exec/signin", "TestServerWithDPoP"},
		{"P391", "internal/serve/front/exposed.go", `if to[key] = alias; a.offers(r, list, item, alias) {`, `if to[key] = alias; true {`, "./internal/serve/front", "TestItemsOfEachCaller"},
		{"P391", "internal/serve/front/exposed.go", `		if a.offers(r, list, item, alias) {`, `		if true {`, "./internal/serve/front", "TestItemsOfEachCaller"},
		{"P391", "internal/serve/front/exposed.go", `			if a.offers(r, list, p.Definition, "") {`, `			if true {`, "./internal/serve/front", "TestItemsOfEachCaller"},
		{"P392", "internal/serve/front/publish.go", `return s.policy != was`, `return false && was != nil`, "./internal/serve/front", "TestItemsChangeWithPolicy"},
		{"P393", "internal/serve/console/connect.go", `Connected(r.Context(), s.Who, s.id(), r.URL.Query())`, `Connected(r.Context(), s.Who, "", r.URL.Query())`, "./internal/serve/console", "TestConnect"},
		{"P394", "internal/serve/console/connect.go", `!c.open(returnPurpose, cookie.Value, &back) || back.Until < time.Now().Unix() {`, `!c.open(returnPurpose, cookie.Value, &back) && false {`, "./internal/serve/console", "TestConnect"},
	}...)
}
