package adversary

// These removals concern attacks on sign-ins and on what callers see of each other.
func init() {
	removals = append(removals, []removal{
		{"P440", "internal/gateway/policy/context.go", `each(func(p *places) { f = p.addFileURL(s) })`, `f = new(places).addFileURL(s)`, "./internal/gateway/policy", "TestFileURLsBesideRulesOverURLs"},
		{"P440", "internal/gateway/policy/context.go", `each(func(p *places) { f = p.addFileURL(s) })`, `f = new(places).addFileURL(s)`, "./internal/gateway/policy", "TestFurtherForbidsAllowNothing"},
		{"P441", "internal/gateway/forward.go", `return g.permitItem(f)`, `return nil`, "./internal/gateway", "TestForwardPassesTheGate"},
		{"P442", "internal/exec/signin/discover.go", ` || !mayName(place, meta.Resource, e):`, `:`, "./internal/exec/signin", "TestNeighbour"},
		{"P442", "internal/exec/signin/discover.go", `egress.Same(p, endpoint) && p.RawQuery == "" &&`, ``, "./internal/exec/signin", "TestNeighbour"},
		{"P443", "internal/exec/signin/storage.go", `held := claim == ""`, `held := true`, "./internal/exec/signin", "TestSuspendedGateway"},
		{"P450", "internal/serve/daemon/api.go", `		if hidden[t.Name] {`, `		if false {`, "./internal/serve/daemon", "TestAgentAsEachCallerSeesIt"},
		{"P449", "internal/exec/signin/storage.go", `return !alive, err`, `return !alive || since > 0, err`, "./internal/exec/signin", "TestClocksDiffer"},
		{"P444", "internal/exec/signin/callers.go", `tx.Exec(` + "`" + `UPDATE signins_begun SET sealed = $1 WHERE id = $2` + "`" + `, []byte{}, id)`, `tx.Exec(` + "`" + `DELETE FROM signins_begun WHERE id = $1` + "`" + `, id)`, "./internal/exec/signin", "TestFailedSignInsCount"},
		{"P444", "internal/exec/signin/callers.go", `full = begun >= maxBegun;`, `full = begun < 0;`, "./internal/exec/signin", "TestManyBegunAtOnce"},
		{"P445", "internal/exec/signin/flow.go", `case isErrorCode(e.code):`, `case e.code != "":`, "./internal/exec/signin", "TestErrorCodes"},
		{"P446", "internal/exec/signin/dpop.go", `context.WithValue(ctx, oauth2.HTTPClient, &c)`, `context.WithValue(ctx, oauth2.HTTPClient, http.DefaultClient)`, "./internal/exec/signin", "TestPrivateEndpoints"},
		{"P446", "internal/exec/signin/discover.go", `	resp, err := c.client.Do(req)`, `	resp, err := http.DefaultTransport.RoundTrip(req)`, "./internal/exec/signin", "TestPrivateEndpoints"},
		{"P447", "internal/store/identity/providers.go", `return nil, errors.New("cannot be read, because part of its path is not an object")`, `return nil, nil`, "./internal/store/identity", "TestNestedGroupsAreCertain"},
		{"P447", "internal/store/identity/providers.go", `elsewhere[path[0]] != nil ||`, `elsewhere[c.GroupsClaim] != nil ||`, "./internal/store/identity", "TestNestedGroupsAreCertain"},
		{"P447", "internal/store/identity/providers.go", ` || claims[path[0]] == nil && string(claims["hasgroups"]) == "true"`, ``, "./internal/store/identity", "TestClaimsAreBounded"},
		{"P448", "internal/exec/toolserver/callers.go", `if strings.HasSuffix(method, "/list_changed") {`, `if strings.HasPrefix(method, "") {`, "./internal/exec/toolserver", "TestNotificationsOfACaller"},
	}...)
}
