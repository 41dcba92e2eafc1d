package adversary

// These removals concern the sign-ins of a daemon's callers.
func init() {
	removals = append(removals, []removal{
		{"P38", "internal/exec/toolserver/prove.go", `if what := diag.Hidden(text); what != "" {`, `if what := diag.Hidden(text); what == "-" {`, "./internal/exec/toolserver", "TestHiddenInstructionsAreWarnedOf"},
		{"P380", "internal/exec/toolserver/callers.go", `return s.callers.use(s, principal, in, id)`, `return s.callers.use(s, "anyone", in, id[:0]+"x")`, "./internal/exec/toolserver", "TestCallersAreProven"},
		{"P380", "internal/exec/toolserver/callers.go", `return s.callers.use(s, principal, in, id)`, `return s.callers.use(s, "anyone", in, id[:0]+"x")`, "./internal/test/faults", "TestCallersTokens"},
		{"P381", "internal/exec/signin/storage.go", `text, _ := json.Marshal(names)`, `text, _ := json.Marshal([]string{})`, "./internal/exec/signin", "TestCopiedRow"},
		{"P382", "internal/exec/signin/session.go", `case err == nil && s.id != "" && (g.Access == "" || g.key() != s.id):`, `case false:`, "./internal/exec/signin", "TestSessionEndsWithItsSignIn"},
		{"P382", "internal/exec/toolserver/callers.go", `if own != nil && own.id != id {`, `if false {`, "./internal/exec/toolserver", "TestCallerSignsOut"},
		{"P383", "internal/exec/signin/callers.go", ` || !sameState(w.Session, session) {`, ` {`, "./internal/exec/signin", "TestOnlyTheStarterCompletes"},
		{"P384", "internal/exec/signin/flow.go", `Verifier: oauth2.GenerateVerifier(),`, `Verifier: strings.Repeat("v", 43),`, "./internal/exec/signin", "TestForeignCode"},
		{"P385", "internal/exec/signin/storage.go", `claimed = n == 1`, `claimed = n < 2`, "./internal/exec/signin", "TestRotationRace"},
		{"P386", "internal/exec/toolserver/callers.go", `known && was.Hash != tool.Hash {`, `known && was.Hash == "" && tool.Hash == "" {`, "./internal/exec/toolserver", "TestCallersAreProven"},
		{"P386", "internal/exec/toolserver/callers.go", `if s.base == nil || s.definition(tool) != nil {`, `if true {`, "./internal/exec/toolserver", "TestCallersAreProven"},
		{"P387", "internal/exec/signin/callers.go", `return u.Identity != ownerIdentity && u.Grant == "", err`, `return u.Identity == callerIdentity, err`, "./internal/exec/signin", "TestIdentity"},
		{"P387", "internal/exec/toolserver/connect.go", `err != nil || on || s.options.Authorize == nil {`, `err != nil || on && false || s.options.Authorize == nil {`, "./internal/exec/toolserver", "TestCallersAreProven"},
		{"P387", "internal/serve/host/binding.go", `byCaller || err != nil {`, `byCaller && err != nil {`, "./internal/test/faults", "TestLoginAtDaemon"},
		{"P388", "internal/exec/toolserver/callers.go", `len(c.all) >= maxCallers && !c.evict():`, `len(c.all) < 0 && !c.evict():`, "./internal/exec/toolserver", "TestCallersAreBounded"},
		{"P388", "internal/exec/signin/callers.go", `full = begun >= maxBegun;`, `full = begun < 0;`, "./internal/exec/signin", "TestManyBegun"},
		{"P389", "internal/serve/daemon/signins.go", `if !isLoopback(asked.Redirect) {`, `if false {`, "./internal/serve/daemon", "TestSignInRedirect"},
		{"P389", "internal/serve/daemon/presence.go", `if u.Scheme != "https" && (`, `if false && (`, "./internal/serve/daemon", "TestKeyNeedsHTTPS"},
	}...)
}
