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
		{"P460", "internal/serve/console/connect.go", `wayBack{Who: c.withoutRights(who), Session: session}`, `wayBack{Who: c.withoutRights(who), Session: "sign-in page"}`, "./internal/serve/console", "TestConnectWithKey"},
		{"P460", "internal/serve/console/connect.go", `if !c.isAccepted(back.Who) || c.o.Backend.Standing(r.Context(), back.Who) != nil {`, `if false {`, "./internal/serve/console", "TestConnectWithKey"},
		{"P461", "internal/serve/daemon/console.go", `b.beginSignIn(r.Context(), p, session,`, `b.beginSignIn(r.Context(), consoleUser, session,`, "./internal/test/faults", "TestSignInPageOfDaemon"},
		{"P462", "internal/serve/front/routes.go", "	t := r.of[principal]\n	if t == nil {\n		t =", "	principal = \"\"\n	t := r.of[principal]\n	if t == nil {\n		t =", "./internal/serve/front", "TestRoutesOfEachCaller"},
		{"P462", "internal/serve/front/routes.go", `&& len(r.of) > 1 {`, `&& len(r.of) < 0 {`, "./internal/serve/front", "TestRoutesOfEachCaller"},
	}...)
}
