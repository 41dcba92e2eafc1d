package adversary

// removal takes one mechanism away. The text in file is replaced, and the test,
// which stands for the promise, has to fail.
type removal struct {
	id   string // of the promise in docs/threat-model.md
	file string
	old  string
	new  string
	// pkg and test are what has to go red; the document names the same test.
	pkg  string
	test string
}

// removals are the mechanisms that are really taken away, one after the other,
// by TestWithoutItsMechanism. Each text stands exactly once in its file.
var removals = []removal{
	{"P01", "internal/gateway/admit.go", `if deeper(p.Arguments, maxDepth) {`, `if false && deeper(p.Arguments, maxDepth) {`, "./internal/gateway", "TestCall"},
	{"P02", "internal/gate/gate.go", `add(call.SideEffectDenied, false,`, `add(call.SideEffectDenied, true,`, "./internal/gate", "TestDecide"},
	{"P03", "internal/gate/gate.go", `add(call.NotInSkillAllowlist, false,`, `add(call.NotInSkillAllowlist, true,`, "./internal/gate", "TestDecide"},
	{"P04", "internal/gate/gate.go", `case len(required) > 0:`, `case false:`, "./internal/gate", "TestCapabilities"},
	{"P05", "internal/policy/policy.go", `		if one.forbid {
			out.forbids = append(out.forbids, f)
		} else {`, `		if one.forbid {
		} else {`, "./internal/policy", "TestCases"},
	{"P06", "internal/gateway/intend.go", `if stopped = gateStage(g, g.inside(ctx, tx), p); stopped != nil {`, `if false {`, "./internal/gateway", "TestRevokedOnTheWay"},
	{"P07", "internal/grant/grant.go", `g.Changed = !ed25519.Verify(public, g.bytes(), signature)`, `_ = public`, "./internal/grant", "TestChanged"},
	{"P08", "internal/memory/memory.go", `name, err := json.Marshal([]string{agentID, id})`, `name, err := json.Marshal([]string{id})`, "./internal/memory", "TestMoved"},
	{"P09", "internal/guard/output.go", `matches, err := o.scan(out)`, `matches, err := []secret.Match(nil), error(nil)`, "./internal/guard", "TestSecretsAreRedactedWhereverTheyAre"},
	{"P10", "internal/guard/output.go", `values[i] = secret.Value{Name: label(k.Name), Secret: k.Value}`, `values[i] = secret.Value{Name: label(k.Name), Secret: "another value of some length"}`, "./internal/guard", "TestKnownCredentialsAreFoundInEveryForm"},
	{"P11", "internal/guard/deny/deny.go", `if !view.ASCII(text) && l.normal.Normal(text) {`, `if false && l.normal.Normal(text) {`, "./internal/guard/deny", "TestEvasions"},
	{"P12", "internal/credential/attach.go", `if !slot.Covers(host) {`, `if false {`, "./internal/credential", "TestAudience"},
	{"P13", "internal/credential/attach.go", `if !s.meant(host) {`, `if false {`, "./internal/credential", "TestSealedAudience"},
	{"P14", "internal/credential/source.go", `if strings.HasPrefix(strings.ToUpper(variable), "AMBIT_") {`, `if false {`, "./internal/credential", "TestOursIsNotTheirs"},
	{"P15", "internal/credential/attach.go", `|| !httpguts.ValidHeaderFieldValue(value) {`, `|| false {`, "./internal/credential", "TestTemplates"},
	{"P16", "internal/egress/dialer.go", `		if allowed(addresses[i]) != nil {
			return nil, blocked(host)
		}`, ``, "./internal/egress", "TestMixedAnswersAreRefused"},
	{"P17", "internal/egress/dialer.go", `if err != nil || allowed(to.Addr().Unmap()) != nil {`, `if err != nil || !to.IsValid() {`, "./internal/egress", "TestSocketIsJudged"},
	{"P18", "internal/egress/host.go", `if !ok || numeric(labels[len(labels)-1]) {`, `if !ok {`, "./internal/egress", "TestHost"},
	{"P19", "internal/egress/egress.go", `resp, err := transport.RoundTrip(`, `resp, err := (&http.Client{Transport: transport}).Do(`, "./internal/egress", "TestRedirectsAreNotFollowed"},
	{"P20", "internal/egress/egress.go", `c.changing.DisableKeepAlives = true`, ``, "./internal/egress", "TestChangesAreSentOnce"},
	{"P21", "internal/egress/proxyhello.go", `err != nil || name != host {`, `err != nil || name == "" {`, "./internal/egress", "TestProxyWantsTLS"},
	{"P22", "internal/egress/proxy.go", `if !agent.Covers(p.policy.Hosts, name) {`, `if false && !agent.Covers(p.policy.Hosts, name) {`, "./internal/egress", "TestProxyRefuses"},
	{"P23", "internal/egress/proxyswap.go", `w.Header().Add(string(mask(find, []byte(name))), string(mask(find, []byte(v))))`, `w.Header().Add(name, v)`, "./internal/egress", "TestSwapMasksEchoes"},
	{"P24", "internal/action/request.go", `	if !httpguts.ValidHeaderFieldValue(text) {`, `	if false {`, "./internal/action", "TestHeaders"},
	{"P25", "internal/action/request.go", `		if leads(filled) {`, `		if false {`, "./internal/action", "TestAddress"},
	{"P26", "internal/journal/check.go", `!bytes.Equal(sum[:], hash) {`, `!bytes.Equal(sum[:], hash) && len(hash) == 0 {`, "./internal/journal", "TestVerifyFindsTampering"},
	{"P27", "internal/journal/verify.go", `	case next <= h.size:`, `	case false:`, "./internal/journal", "TestVerifyDemandsEveryStride"},
	{"P28", "internal/journal/check.go", `!c.erasable && s.to > told {`, `!c.erasable && s.to > told && s.to < 0 {`, "./internal/journal", "TestEraseIsToldAndProven"},
	{"P29", "internal/journal/post.go", `e.Left > 0 && over {`, `e.Left < 0 && over {`, "./internal/journal", "TestTornDaybookIsTold"},
	{"P30", "internal/journal/daybook/daybook.go", `	if err == nil {
		err = b.sync(b.file)
	}`, ``, "./internal/journal/daybook", "TestFailedSync"},
	{"P31", "internal/approval/approval.go", `AND state = 'approved' AND expires`, `AND expires`, "./internal/gateway", "TestOneApprovalAdmitsOneCall"},
	{"P32", "internal/serve/shield.go", `case !s.knowsHost(r.Host):`, `case false:`, "./internal/serve", "TestHostAndOrigin"},
	{"P33", "internal/serve/shield.go", `case !s.sameOrigin(r) && !fromPages(r) || s.cross.Check(r) != nil:`, `case false:`, "./internal/serve", "TestHostAndOrigin"},
	{"P34", "internal/serve/auth.go", `r.Header.Del("Authorization")`, ``, "./internal/serve", "TestKeyIsNotPassedOn"},
	{"P35", "internal/front/remote.go", `t.Principal != principal || t.Agent != a.Door.Agent().ID ||`, ``, "./internal/front", "TestForeignSessions"},
	{"P36", "internal/front/rounds.go", `err != nil || !slices.Equal(s.Binding, a.binding(r)) {`, `err != nil {`, "./internal/front", "TestRequestState"},
	{"P37", "internal/toolserver/prove.go", `if d.What == pack.Changed && p.Refusal == nil {`, `if false {`, "./internal/toolserver", "TestLockedDefinitions"},
	{"P38", "internal/toolserver/hidden.go", `if what := diag.Hidden(text); what != "" {`, `if what := diag.Hidden(text); what == "-" {`, "./internal/toolserver", "TestHiddenInstructionsAreWarnedOf"},
	{"P39", "internal/toolserver/process_linux.go", `covers = append(covers, "--tmpfs", dir)`, `covers = append(covers, "--dir", dir)`, "./internal/toolserver", "TestServerCannotReachUs"},
	{"P40", "internal/toolserver/prove.go", `r.Message, r.Hint = s.secrets.mask(r.Message), s.secrets.mask(r.Hint)`, ``, "./internal/toolserver", "TestCredentialsInLastWords"},
	{"P41", "internal/mcpwire/scan.go", `const maxDepth = 1000`, `const maxDepth = 1 << 30`, "./internal/mcpwire", "TestHostile"},
	{"P42", "internal/bundle/archive.go", `w.out > ratioFrom && w.out > maxRatio*w.in() {`, `w.out < 0 {`, "./internal/bundle", "TestBounds"},
	{"P43", "internal/bundle/archive.go", `		b.report(ruleLink, short, 0,`, `		_ = short
		return true
		b.report(ruleLink, short, 0,`, "./internal/bundle", "TestHostileArchives"},
	{"P44", "internal/backup/backup.go", `|| !slices.Contains(kept, first) {`, `|| first == "" {`, "./internal/backup", "TestHostileBackups"},
	{"P45", "manifest/diag/source.go", `	return r != ' ' && !unicode.IsPrint(r)`, `	return false && r != ' ' && !unicode.IsPrint(r)`, "./manifest", "TestProblemsArePrintable"},
	{"P46", "internal/cli/terminal.go", `odd := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }`, `odd := func(r rune) bool { return r < 0 && !unicode.IsPrint(r) }`, "./test/adversary", "TestNothingDrivesTheTerminal"},
	{"P77", "internal/journal/post.go", `len(e.Bodies) == 0 && e.End < to {`, `len(e.Bodies) < 0 && e.End < to {`, "./internal/journal", "TestSpoiltEntry"},
}
