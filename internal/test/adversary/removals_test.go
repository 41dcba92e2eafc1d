package adversary

// removals lists the mechanisms that TestWithoutItsMechanism removes one after the other. Every promise has at
// least one removal. The text of each removal occurs exactly once in its file.
var removals = []removal{
	{"P01", "internal/gateway/admit.go", `if rawjson.Deeper(p.Arguments, maxDepth) {`, `if false && rawjson.Deeper(p.Arguments, maxDepth) {`, "./internal/gateway", "TestCall"},
	{"P02", "internal/gateway/gate/gate.go", `deny(call.SideEffectDenied, "the side-effect class "+string(t.SideEffect)+" is not in allowed_side_effects")`, `allow("anything goes")`, "./internal/gateway/gate", "TestDecide"},
	{"P03", "internal/gateway/gate/gate.go", `deny(call.NotInSkillAllowlist, "the §TOOLS section of "+c.Skill.Name()+" does not list "+uri)`, `allow(uri)`, "./internal/gateway/gate", "TestDecide"},
	{"P04", "internal/gateway/gate/gate.go", `case len(required) > 0:`, `case false:`, "./internal/gateway/gate", "TestCapabilities"},
	{"P05", "internal/gateway/policy/policy.go", `out.broken = append(out.broken, failure{one, describeError(e.Message)})`, `_ = one`, "./internal/gateway/policy", "TestCases"},
	{"P06", "internal/gateway/intend.go", `if stopped = gateStage(g, state.Within(ctx, tx), p); stopped != nil {`, `if false {`, "./internal/gateway", "TestRevokedOnTheWay"},
	{"P07", "internal/gateway/grant/grant.go", `g.Changed = revoked == 0 && !v.Has(g.row())`, `_ = v`, "./internal/gateway/grant", "TestChanged"},
	{"P08", "internal/exec/memory/memory.go", `name, err := json.Marshal([]string{agentID, id})`, `name, err := json.Marshal([]string{id})`, "./internal/exec/memory", "TestMoved"},
	{"P09", "internal/gateway/guard/output.go", `matches, cut := o.scan(out)`, `matches, cut := o.scan(nil)`, "./internal/gateway/guard", "TestSecretsAreRedactedWhereverTheyAre"},
	{"P10", "internal/gateway/guard/output.go", `values[i] = secret.Value{Name: label(k.Name), Secret: k.Value}`, `values[i] = secret.Value{Name: label(k.Name), Secret: "another value of some length"}`, "./internal/gateway/guard", "TestKnownCredentialsAreFoundInEveryForm"},
	{"P11", "internal/gateway/guard/deny/deny.go", `if view.ASCII(text) || !l.normal.Normal(text) {`, `if true || !l.normal.Normal(text) {`, "./internal/gateway/guard/deny", "TestEvasions"},
	{"P12", "internal/exec/credential/secret.go", `if !slot.Covers(host) {`, `if false {`, "./internal/exec/credential", "TestAudience"},
	{"P13", "internal/exec/credential/secret.go", `if !s.allows(host) {`, `if false {`, "./internal/exec/credential", "TestSealedAudience"},
	{"P14", "internal/exec/credential/source.go", `if strings.HasPrefix(strings.ToUpper(variable), "AMBIT_") {`, `if false {`, "./internal/exec/credential", "TestOursIsNotTheirs"},
	{"P15", "internal/exec/credential/secret.go", `|| !httpguts.ValidHeaderFieldValue(value) {`, `|| false {`, "./internal/exec/credential", "TestTemplates"},
	{"P16", "internal/gateway/egress/dialer.go", `		if allowed(addresses[i]) != nil {`, `		if false {`, "./internal/gateway/egress", "TestMixedAnswersAreRefused"},
	{"P17", "internal/gateway/egress/dialer.go", `if err != nil || allowed(to.Addr().Unmap()) != nil {`, `if err != nil || !to.IsValid() {`, "./internal/gateway/egress", "TestSocketIsJudged"},
	{"P18", "agent/access.go", `if len(host) > 253 || strings.Trim(last, digits) == "" {`, `if len(host) > 253 || last == digits {`, "./internal/gateway/egress", "TestHost"},
	{"P19", "internal/gateway/egress/egress.go", `resp, err := c.reused.RoundTrip(`, `resp, err := (&http.Client{Transport: c.reused}).Do(`, "./internal/gateway/egress", "TestRedirectsAreNotFollowed"},
	{"P20", "internal/gateway/egress/egress.go", `resp, err := conn.RoundTrip(req)`, `resp, err := c.single.RoundTrip(req)`, "./internal/gateway/egress", "TestChangesAreSentOnce"},
	{"P20", "internal/exec/mcpwire/http.go", `		req.Body = io.NopCloser(bytes.NewReader(body))
`, `		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
`, "./internal/exec/mcpwire", "TestHTTP2NeverSendsTwice"},
	{"P21", "internal/gateway/egress/network.go", `err != nil || canonical != host {`, `err != nil || canonical == "" {`, "./internal/gateway/egress", "TestProxyRequiresTLS"},
	{"P22", "internal/gateway/egress/network.go", `if p.Mode == ModeAllowlist && !agent.Covers(p.Hosts, name) ||`, `if false && !agent.Covers(p.Hosts, name) ||`, "./internal/gateway/egress", "TestProxyRefuses"},
	{"P23", "internal/gateway/egress/proxyswap.go", `w.Header().Add(string(mask(find, []byte(name))), string(mask(find, []byte(v))))`, `w.Header().Add(name, v)`, "./internal/gateway/egress", "TestSwapMasksEchoes"},
	{"P24", "internal/exec/action/request.go", `	if !httpguts.ValidHeaderFieldValue(text) {`, `	if false {`, "./internal/exec/action", "TestHeaders"},
	{"P25", "internal/exec/action/request.go", `		if changesPath(filled, whole) {`, `		if false {`, "./internal/exec/action", "TestAddress"},
	{"P26", "internal/store/journal/check.go", `!bytes.Equal(sum[:], hash) {`, `!bytes.Equal(sum[:], hash) && len(hash) == 0 {`, "./internal/store/journal", "TestVerifyFindsTampering"},
	{"P27", "internal/store/journal/verify.go", `	case next <= h.size:`, `	case false:`, "./internal/store/journal", "TestVerifyDemandsEveryStride"},
	{"P28", "internal/store/journal/check.go", `!c.erasable && s.to > end {`, `!c.erasable && s.to > end && s.to < 0 {`, "./internal/store/journal", "TestEraseIsRecordedAndProven"},
	{"P29", "internal/store/journal/post.go", `e.Left > 0 && over {`, `e.Left < 0 && over {`, "./internal/store/journal", "TestTornEntryIsRecorded"},
	{"P30", "internal/store/journal/wal/wal.go", `	if err == nil {
		err = w.sync(w.file)
	}`, ``, "./internal/store/journal/wal", "TestFailedSync"},
	{"P31", "internal/gateway/approval/approval.go", `return q.State == Approved && v.Has(q.row())`, `return v != nil`, "./internal/gateway", "TestOneApprovalAdmitsOneCall"},
	{"P32", "internal/serve/daemon/shield.go", `case !s.knowsHost(r.Host):`, `case false:`, "./internal/serve/daemon", "TestHostAndOrigin"},
	{"P32", "internal/serve/daemon/shield.go", `case !s.knowsHost(r.Host):`, `case false:`, "./internal/test/adversary", "TestEveryPathKnowsItsHost"},
	{"P33", "internal/serve/daemon/shield.go", `case !s.sameOrigin(r) && !fromPages(r) || s.cross.Check(r) != nil:`, `case false:`, "./internal/serve/daemon", "TestHostAndOrigin"},
	{"P34", "internal/serve/daemon/auth.go", `r.Header.Del("Authorization")`, ``, "./internal/serve/daemon", "TestKeyIsNotPassedOn"},
	{"P35", "internal/serve/front/httpsession.go", `t.Principal != principal ||
		t.Agent != h.agent.Gateway.Agent().ID ||`, ``, "./internal/serve/front", "TestForeignSessions"},
	{"P36", "internal/serve/front/rounds.go", `&s) != nil || !slices.Equal(s.Binding, a.binding(r)) {`, `&s) != nil {`, "./internal/serve/front", "TestRequestState"},
	{"P37", "internal/exec/toolserver/prove.go", `if d.What == pack.Changed && p.Refusal == nil {`, `if false {`, "./internal/exec/toolserver", "TestLockedDefinitions"},
	{"P37", "internal/exec/toolserver/prove.go", `if d.What == pack.Changed && p.Refusal == nil {`, `if false {`, "./internal/test/adversary", "TestServerTurns"},
	{"P39", "internal/exec/toolserver/process_linux.go", `covers = append(covers, "--tmpfs", dir)`, `covers = append(covers, "--dir", dir)`, "./internal/exec/toolserver", "TestServerCannotReachUs"},
	{"P40", "internal/exec/toolserver/prove.go", `r.Message, r.Hint = s.secrets.mask(r.Message), s.secrets.mask(r.Hint)`, ``, "./internal/exec/toolserver", "TestCredentialsInLastWords"},
	{"P41", "internal/gateway/rawjson/scan.go", `const MaxDepth = 1000`, `const MaxDepth = 1 << 30`, "./internal/exec/mcpwire", "TestHostile"},
	{"P42", "internal/supply/bundle/archive.go", `f.UncompressedSize64 > ratioFrom && f.UncompressedSize64/maxRatio > f.CompressedSize64 {`, `false {`, "./internal/supply/bundle", "TestBounds"},
	{"P43", "internal/supply/bundle/archive.go", `	case !mode.IsRegular() && !mode.IsDir():`, `	case false:`, "./internal/supply/bundle", "TestHostileArchives"},
	{"P44", "internal/store/backup/backup.go", `|| rank(rel) < 0 {`, `|| rank(rel) < -1 {`, "./internal/store/backup", "TestHostileBackups"},
	{"P45", "internal/manifest/diag/source.go", `	return r != ' ' && (!unicode.IsPrint(r)`, `	return false && r != ' ' && (!unicode.IsPrint(r)`, "./manifest", "TestProblemsArePrintable"},
	{"P46", "internal/cli/terminal.go", `odd := func(r rune) bool { return r >= 0x7f && diag.Unseen(r) }`, `odd := func(r rune) bool { return r < 0 && diag.Unseen(r) }`, "./internal/test/adversary", "TestNothingDrivesTheTerminal"},
	{"P47", "internal/cli/log.go", `	log.Log(context.Background(), level, line, attributes...)`, `	os.Stderr.WriteString(level.String() + " " + line + "\n")`, "./internal/test/adversary", "TestLogIsTheDaemonsOwn"},
	{"P48", "internal/serve/console/console.go", `"html/template"`, `"text/template"`, "./internal/test/adversary", "TestConsoleShowsTextAsText"},
	{"P49", "internal/serve/console/session.go", `if subtle.ConstantTimeCompare([]byte(r.PostFormValue("token")), []byte(s.Token)) != 1 {`, `if subtle.ConstantTimeCompare(nil, nil) != 1 {`, "./internal/test/adversary", "TestDaemonIsNotABrowsersPuppet"},
	{"P50", "internal/serve/console/session.go", `if good, err = c.o.SingleUse.Spend(r.Context(), "console link "+l.ID, time.Unix(l.Until, 0)); err != nil {`, `if err != nil {`, "./internal/test/adversary", "TestDaemonIsNotABrowsersPuppet"},
	{"P51", "internal/exec/toolserver/prepare.go", `	var env []string
	for _, name := range agent.PlainEnv {`, `	env := os.Environ()
	for _, name := range agent.PlainEnv {`, "./internal/test/adversary", "TestServerSeesNoOtherEnvironment"},
	{"P52", "internal/exec/action/answer.go", `io.ReadAll(io.LimitReader(resp.Body, b.MaxResponse+1))`, `io.ReadAll(resp.Body)`, "./internal/exec/action", "TestEndlessAnswers"},
	{"P53", "internal/store/identity/principal.go", `return p.Admin || p.Everywhere || slices.Contains(p.Agents, agent)`, `return p != nil || slices.Contains(p.Agents, agent)`, "./internal/serve/daemon", "TestPermissions"},
	{"P53", "internal/serve/daemon/routes.go", `if !principalOf(r).Admin {`, `if principalOf(r) == nil {`, "./internal/serve/daemon", "TestPermissions"},
	{"P54", "internal/serve/console/session.go", `	err := c.o.Backend.Standing(ctx, s.Who)`, `	var err error`, "./internal/serve/daemon", "TestConsoleEndsWithItsKey"},
	{"P54", "internal/gateway/admit.go", `	if p.Waited {`, `	if false {`, "./internal/exec/dispatch", "TestKeyEndsWhileItWaits"},
	{"P54", "internal/serve/daemon/intents.go", `		r.Key = p.KeyID`, `		_ = p.KeyID`, "./internal/serve/daemon", "TestRevokedWhileIntentsWait"},
	{"P54", "internal/serve/daemon/auth.go", `	if canExpire(p) {`, `	if false {`, "./internal/serve/daemon", "TestRevokedWhileApprovalPending"},
	{"P54", "internal/serve/daemon/standing.go", `; over {`, `; over && false {`, "./internal/serve/daemon", "TestStreamsEndWithTheirKey"},
	{"P55", "internal/store/identity/apikey.go", `	k.hash = hash[:]`, `	k.hash = append(hash[:], text...)`, "./internal/store/identity", "TestOnlyTheHashIsKept"},
	{"P56", "internal/exec/action/action.go", `Principal: c.Principal, Parent`, `Principal: "owner@local", Parent`, "./internal/exec/action", "TestCompose"},
	{"P56", "internal/exec/action/action.go", `Skill: c.Skill, Timeout`, `Timeout`, "./internal/exec/action", "TestCompose"},
	{"P57", "internal/exec/action/action.go", `if len(steps) > maxDepth {`, `if false {`, "./internal/exec/action", "TestComposeEnds"},
	{"P57", "internal/exec/action/action.go", `if slices.Contains(steps, to.Agent+"/"+to.Tool) {`, `if false {`, "./internal/exec/action", "TestComposeEnds"},
	{"P58", "internal/gateway/guard/deny/deny.go", `err == nil && total > maxPrograms {`, `err == nil && total < 0 {`, "./internal/gateway/guard/deny", "TestPatternsAreBounded"},
	{"P58", "internal/gateway/guard/deny/deny.go", `if len(prog.Inst) > maxProgram {`, `if false {`, "./internal/gateway/guard/deny", "TestPatternsAreBounded"},
	{"P58", "internal/gateway/guard/secret/scan.go", `	case !r.more || r.end >= limit:
		return r.end
	default:
		end = r.end
	}`, `	}`, "./internal/gateway/guard/secret", "TestLinearWork"},
	{"P58", "internal/gateway/guard/secret/decode.go", `s.budget < end-start {`, `false {`, "./internal/gateway/guard/secret", "TestDecodedTextIsBounded"},
	{"P58", "internal/manifest/findagent/guardrails.go", `|| len(s.set) >= maxGoodPatterns {`, `{`, "./internal/manifest/findagent", "TestPatternSetIsBounded"},
	{"P59", "internal/supply/importer/importer.go", `		if !shallow(text) {`, `		if false {`, "./internal/test/adversary", "TestBombsInFiles"},
	{"P59", "internal/manifest/diag/diag.go", `	if len(r.list) >= maxDiagnostics {
		r.dropped++`, `	if len(r.list) < 0 {
		r.dropped++`, "./internal/manifest/doc", "TestManyProblems"},
	{"P60", "internal/manifest/diag/source.go", `func (s *Source) Mask(start, end int) { s.masks = append(s.masks, [2]int{start, end}) }`, `func (s *Source) Mask(start, end int) { _ = start + end }`, "./manifest", "TestSecretsAreNeverShown"},
	{"P61", "internal/exec/credential/secret.go", `	return hidden
}`, `	return s.Reveal()
}`, "./internal/exec/credential", "TestSecretIsNotShown"},
	{"P62", "internal/supply/pack/package.go", `if got, err := hashFile(filepath.Join(dir, fileArchive)); err != nil || got != r.Digest {`, `if got, err := hashFile(filepath.Join(dir, fileArchive)); got == "-" {`, "./internal/supply/pack", "TestOpenRefusesWhatChanged"},
	{"P62", "internal/supply/pack/package.go", `if want.Tree != "" && tree != want.Tree || filepath.Base(dir) != folderName(want.Digest, tree) {`, `if want.Tree != "" && tree == "-" {`, "./internal/supply/pack", "TestOpenRefusesWhatChanged"},
	{"P63", "internal/exec/sandbox/bubblewrap_linux.go", `bwrap, "--unshare-all", "--unshare-user",`, `bwrap, "--unshare-all", "--share-net", "--unshare-user",`, "./internal/exec/sandbox", "TestNoWayOut"},
	{"P63", "internal/exec/sandbox/bubblewrap_linux.go", `a = append(a, "--ro-bind", source, m.To)
		p.ReadOnly`, `a = append(a, "--bind", source, m.To)
		p.ReadWrite`, "./internal/exec/sandbox", "TestNothingElseIsWritable"},
	{"P63", "internal/exec/sandbox/shim/restrict_linux.go", `	if err := filter(p, private); err != nil {`, `	if _, err := private, error(nil); err != nil {`, "./internal/exec/sandbox", "TestSyscalls"},
	{"P64", "internal/exec/sandbox/bubblewrap_linux.go", `memoryDisk := strconv.FormatInt(s.disk, 10)`, `memoryDisk := strconv.FormatInt(s.disk*100, 10)`, "./internal/exec/sandbox", "TestDiskFill"},
	{"P64", "internal/exec/sandbox/cgroup_linux.go", `strconv.FormatInt(b.memory, 10), strconv`, `strconv.FormatInt(b.memory*1000, 10), strconv`, "./internal/exec/sandbox", "TestMemoryHog"},
	{"P65", "internal/exec/program/program.go", `Tier: b.options.Isolation, Stdin`, `Tier: sandbox.Standard, Stdin`, "./internal/exec/program", "TestNeverLess"},
	{"P65", "internal/exec/sandbox/check_linux.go", `case report != nil && report.Text != "":`, `case false:`, "./internal/exec/sandbox", "TestFailsClosed"},
	{"P66", "internal/exec/program/bundle.go", `return !slot.Covers(host) || len(s.Hosts()) > 0 && !agent.Covers(s.Hosts(), host)`, `return !slot.Covers(host)`, "./internal/exec/program", "TestBundleCredentialKeepsItsAudience"},
	{"P67", "internal/gateway/egress/proxyswap.go", `strings.ContainsAny(out.Header[name][i], "\r\n\x00") {`, `false {`, "./internal/gateway/egress", "TestSwapInjectsNoHeader"},
	{"P68", "internal/supply/registry/client.go", `case len(body) > maxBody:`, `case false:`, "./internal/supply/registry", "TestRegistryIsBounded"},
	{"P68", "internal/supply/registry/listing.go", `if word := in.words(); len(word) != 1 || word[0] != "-y" && word[0] != "--yes" {`, `if word := in.words(); len(word) > 1<<20 {`, "./internal/supply/registry", "TestRecipes"},
	{"P68", "internal/supply/registry/listing.go", `case in.IsSecret || strings.ContainsAny(value, "{}") || value == "" && in.IsRequired:`, `case strings.ContainsAny(value, "{}"):`, "./internal/supply/registry", "TestRegistrySecrets"},
	{"P69", "internal/serve/login/login.go", `return !slices.Contains(e.Hosts, host) })`, `return host == "" })`, "./internal/serve/login", "TestTokenGoesToItsHost"},
	{"P70", "internal/exec/dispatch/work.go", `c.Principal, c.By, c.Arguments = asked.Principal, asked.By, jsontext.Value(asked.Arguments)`, "c.By, c.Arguments = asked.By, jsontext.Value(asked.Arguments)\n\t_ = q.store.DB.Read(ctx, func(tx state.Tx) error {\n\t\treturn tx.Query(`SELECT principal FROM intents WHERE id = $1`, []any{id}, func(row state.Row) error { return row.Scan(&c.Principal) })\n\t})", "./internal/exec/dispatch", "TestIssuerIsSealed"},
	{"P71", "internal/gateway/intend.go", `if stopped, err = limit.Take(tx, g.meter(p)); err`, `if stopped, err = limit.Look(tx, g.meter(p)); err`, "./internal/gateway", "TestFleet"},
	{"P72", "internal/gateway/intend.go", `			return g.writeIntent(tx, p)`, `			return nil`, "./internal/gateway", "TestKill"},
	{"P72", "internal/gateway/recover.go", `case o.state != stateSending || o.resendable == 0:`, `case o.resendable == 0:`, "./internal/gateway", "TestRecover"},
	{"P73", "internal/gateway/intend.go", `			return StoreFailed(ctx, stageIntend, err)
		}
		// Another`, `			return nil
		}
		// Another`, "./internal/test/faults", "TestStoreGone"},
	{"P73", "internal/gateway/intend.go", `			return StoreFailed(ctx, stageIntend, err)
		}
		// Another`, `			return nil
		}
		// Another`, "./internal/test/faults", "TestDaemonOnAFullDisk"},
	{"P74", "internal/gateway/record.go", `	if p.late != nil {
		g.late`, `	if false {
		g.late`, "./internal/test/faults", "TestUpstream"},
	{"P74", "internal/gateway/record.go", `	if p.late != nil {
		g.late`, `	if false {
		g.late`, "./internal/test/faults", "TestLateAnswer"},
	{"P74", "internal/exec/toolserver/act.go", `	refuse := call.Uncertain
`, `	refuse := call.Refuse
`, "./internal/test/faults", "TestServerEndsInACall"},
	{"P75", "internal/store/state/postgres/batch.go", `	s.conn = conn
	if err`, `	s.conn = conn
	if s.owner != "" {
		return nil
	}
	if err`, "./internal/store/state/statetest", "TestLostConnectionIsANewOwner"},
	{"P76", "internal/store/journal/journal.go", `place(log, first+int64(i)), hashes[i][:], records[i]); err != nil {
			return err`, `place(log, first+int64(i)), hashes[i][:], records[i]); err != nil {
			return nil`, "./internal/store/journal", "TestEveryStatementMayFail"},
	{"P77", "internal/store/journal/post.go", `len(e.Bodies) == 0 && e.End < to {`, `len(e.Bodies) < 0 && e.End < to {`, "./internal/store/journal", "TestCorruptEntry"},
	{"P78", "internal/store/journal/encode.go", `bytes.IndexByte(args, '\n') >= 0 || bytes.IndexByte(args, '\r') >= 0:`, `false:`, "./internal/store/journal", "TestKeptRecordsAreOneLine"},
	{"P79", "internal/store/backup/restore.go", `if err == nil && !bytes.Equal(have, f.text) {`, `if err == nil && !bytes.Equal(have, f.text) && have == nil {`, "./internal/store/backup", "TestRestoreOverwritesNothing"},
	{"P79", "internal/store/backup/seal.go", `	if len(to) == 0 {
		return nopCloser`, `	if true {
		return nopCloser`, "./internal/store/backup", "TestSealedBackups"},
	{"P80", "internal/gateway/policy/policy.go", `func describeError(message string) string {
`, `func describeError(message string) string {
	if message != "" {
		return message
	}
`, "./internal/gateway/policy", "TestReasonsHoldNoArguments"},
	{"P81", "internal/supply/importer/bundle.go", `!filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name:`, `path.Clean(name) == "":`, "./internal/supply/importer", "TestHostileBundles"},
	{"P81", "internal/supply/importer/scrub.go", `func harmless(value string) bool { return plainValue.MatchString(value) }`, `func harmless(value string) bool { return plainValue.MatchString(value) || value != "" }`, "./internal/supply/importer", "TestImports"},
	{"P82", "internal/serve/daemon/ui.go", `if !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {`, `if false {`, "./internal/serve/daemon", "TestUIOutside"},
	{"P82", "internal/serve/daemon/ui.go", `"sandbox allow-scripts; default-src`, `"default-src`, "./internal/serve/daemon", "TestUIPages"},
	{"P82", "internal/serve/daemon/ui.go", `|| time.Now().Unix() >= t.Until ||`, `||`, "./internal/serve/daemon", "TestUITickets"},
	{"P83", "internal/serve/front/httpsession.go", ` && time.Now().Unix() <= p.until {`, ` {`, "./internal/serve/front", "TestHeldSessionEnds"},
	{"P84", "internal/store/journal/wal/wal.go", `	if p.crowd {
`, `	if false {
`, "./internal/store/journal/wal", "TestCrowdSharesASync"},
	{"P85", "internal/exec/credential/source.go", `		if ok && isFor(secret, a) {`, `		if ok {`, "./internal/exec/credential", "TestCopiedAgentGetsNoSecret"},
	{"P85", "internal/exec/credential/source.go", `return s.Agent != "" && s.Agent != Own }`, `return s.Agent != "" }`, "./internal/exec/credential", "TestCopiedAgentGetsNoSecret"},
	{"P85", "internal/exec/credential/source.go", `		if ok && isFor(secret, a) {`, `		if all, _ := s.Vault.List(); !ok {
			for _, e := range all {
				if e.ID == ID(a) && e.Ref == w.Ref {
					secret, ok, _ = s.Vault.Get(e.Agent, e.Ref)
				}
			}
		}
		if ok && isFor(secret, a) {`, "./internal/test/adversary", "TestSecretsOfAnotherAgent"},
	{"P86", "internal/supply/skill/s3.go", `	for range maxPages {`, `	for {`, "./internal/supply/skill", "TestListEnds"},
	{"P87", "internal/exec/toolserver/prove.go", `	if len(path) > maxPath {`, `	if false {`, "./internal/exec/toolserver", "TestDeepKeysAreCheap"},
	{"P88", "internal/gateway/limit/limit.go", `doubtful = doubtful || other != name && strings.EqualFold(other, name)`, `_ = other`, "./internal/gateway/limit", "TestAmountsAlike"},
	{"P89", "internal/store/state/sqlite/enter.go", `time.AfterFunc(lockTime,`, `time.AfterFunc(time.Hour,`, "./internal/store/state/sqlite", "TestStoppedNeighbour"},
	{"P89", "internal/store/state/sqlite/enter.go", `time.NewTimer(lockTime)`, `time.NewTimer(time.Hour)`, "./internal/store/state/sqlite", "TestOpeningIsBounded"},
	{"P90", "internal/store/state/postgres/postgres.go", `	Control:         setUserTimeout,`, ``, "./internal/store/state/postgres", "TestDial"},
	{"P90", "internal/store/state/postgres/postgres.go", `config.RuntimeParams[name] = value`, `_, _ = name, value`, "./internal/store/state/statetest", "TestServerLooksForOwners"},
	{"P91", "internal/serve/daemon/shield.go", `if len(r.TransferEncoding) > 0 {`, `if false {`, "./internal/serve/daemon", "TestNoRequestAfterTransferEncoding"},
	{"P95", "internal/gateway/guards.go", `slices.Equal(known, w.sought)`, `slices.Equal(known, known)`, "./internal/gateway", "TestCredentialsChange"},
	{"P95", "internal/exec/credential/source.go", `s.issued.add(a, name, secret)`, `_ = secret`, "./internal/serve/host", "TestFormerCredentialIsFound"},
	{"P95", "internal/exec/credential/source.go", `append(known, s.issued.all()...), failed`, `known, failed`, "./internal/serve/host", "TestLazyFormerCredentialIsFound"},
	{"P95", "internal/exec/credential/source.go", `	s.issued.add(a, slot.Ref, secret)`, ``, "./internal/exec/credential", "TestKnownKeepsIssuedValues"},
	{"P96", "internal/gateway/recover.go", `if stopped == nil || !p.resent || stopped.Effect != call.NoEffect {`, `if true {`, "./internal/gateway", "TestRecover"},
	{"P96", "internal/gateway/record.go", `	stopped := p.afterResend(o.Refusal)`, `	stopped := o.Refusal`, "./internal/gateway", "TestResendNotSentLate"},
	{"P97", "internal/gateway/forward.go", `if stopped := g.guards.request(ctx, f, found.note); stopped != nil {`, `if stopped := g.guards.request(ctx, f, found.note); false {`, "./internal/gateway", "TestForward"},
	{"P97", "internal/gateway/forward.go", `if !strings.HasSuffix(f.Method, "/list") && f.Method != "resources/unsubscribe" {`, `if false {`, "./internal/gateway", "TestForward"},
	{"P98", "internal/gateway/egress/network.go", `if !l.network.count(int64(read)) {`, `if false {`, "./internal/gateway/egress", "TestTunnelIsBounded"},
	{"P98", "internal/gateway/egress/proxy.go", `if !n.count(maxRequest - head.N - int64(buffered.Buffered())) {`, `if false {`, "./internal/gateway/egress", "TestProxyCountsHeaders"},
	{"P99", "internal/cli/ask.go", "	if ctx.Err() != nil {\n		t.interrupted = true", "	if false {\n		t.interrupted = true", "./internal/cli", "TestInterruptedQuestion"},
	{"P100", "internal/exec/dispatch/intent.go", `n < maxWaiting && bytes+int64(size) <= maxWaitingBytes`, `true`, "./internal/exec/dispatch", "TestWaitingLimit"},
	{"P101", "internal/store/home/settings.go", `	c.table(whole, settings, nil)`, ``, "./internal/store/home", "TestConfigProblems"},
	{"P102", "internal/serve/host/host.go", `g.Guard(&call.Client{Notify: a.front.Publish}).Notify(method, params)`, `a.front.Publish(method, params)`, "./internal/serve/host", "TestAnnouncementsAreScanned"},
	{"P103", "internal/serve/front/rounds.go", `if r.round >= maxRounds {`, `if false {`, "./internal/serve/front", "TestQuestionsHaveAnEnd"},
	{"P103", "internal/gateway/intend.go", `if g.options.Quotas == nil {`, `if g.options.Quotas == nil || p.Continues != "" {`, "./internal/gateway", "TestQuotaCoversAllGateways"},
	{"P104", "internal/serve/console/session.go", `	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
`, ``, "./internal/serve/console", "TestLoginFormIsBounded"},
	{"P105", "internal/serve/console/session.go", `(who.Kind != identity.Local || who.KeyID == c.daemonKey)`, `true`, "./internal/serve/console", "TestSessionEndsWithTheTemporaryKey"},
	{"P105", "internal/serve/console/session.go", `(who.Kind != identity.Local || who.KeyID == c.daemonKey)`, `true`, "./internal/serve/daemon", "TestConsoleEndsWithTheDaemon"},
	{"P106", "internal/serve/console/session.go", `if subtle.ConstantTimeCompare([]byte(r.PathValue("home")), []byte(s.Home)) != 1 {`, `if subtle.ConstantTimeCompare(nil, nil) != 1 {`, "./internal/serve/console", "TestSessionHasItsOwnAddress"},
	{"P106", "internal/serve/console/session.go", `Path: s.base(), `, `Path: "/", `, "./internal/serve/console", "TestSessionStaysAtItsAddress"},
	{"P106", "internal/serve/console/console.go", `"Referrer-Policy", "strict-origin"`, `"Referrer-Policy", "unsafe-url"`, "./internal/serve/console", "TestSessionStaysAtItsAddress"},
	{"P107", "internal/gateway/record.go", `err == nil && stopped.Unsent && p.Continues == ""`, `err == nil && p.Continues == ""`, "./internal/gateway", "TestSentCounts"},
	{"P107", "internal/exec/mcpwire/errors.go", `return t == ErrSessionLost }`, `return t == ErrSessionLost || t == ErrNotSent }`, "./internal/exec/toolserver", "TestLostSessionWasSent"},
	{"P107", "internal/exec/mcpwire/conn.go", `return fmt.Errorf("%w: %v", ErrSessionLost, err)`, `return fmt.Errorf("%w: %w", ErrSessionLost, err)`, "./internal/exec/mcpwire", "TestHTTPSessionLostForGood"},
	{"P108", "internal/gateway/egress/egress.go", `return effect == agent.Read && Reads(req.Method)`, `return Reads(req.Method)`, "./internal/gateway/egress", "TestChangesAreSentOnce"},
	{"P108", "internal/gateway/egress/egress.go", `return effect == agent.Read && Reads(req.Method)`, `return Reads(req.Method)`, "./internal/gateway", "TestChangeByGetIsMadeOnce"},
	{"P109", "internal/gateway/egress/proxyswap.go", `slices.Concat(connectionNames(r.Header), perHop, rangeHeaders)`, `slices.Concat(connectionNames(r.Header), perHop)`, "./internal/gateway/egress", "TestSwapTakesNoParts"},
	{"P109", "internal/gateway/egress/proxyswap.go", `if resp.StatusCode == http.StatusPartialContent || resp.Header.Get("Content-Range") != "" {`, `if false {`, "./internal/gateway/egress", "TestSwapTakesNoParts"},
	{"P110", "internal/gateway/egress/proxyswap.go", `	out.Body = onlyOnce{out.Body}`, ``, "./internal/gateway/egress", "TestSwapSendsOnce"},
	{"P111", "internal/exec/toolserver/process_linux.go", `	sessions := runtimeDirs()`, `	sessions := runtimeDirs()[:0]`, "./internal/exec/toolserver", "TestSessionIsHidden"},
	{"P112", "internal/exec/toolserver/process_linux.go", `"--dev", "/dev", "--proc"`, `"--dev-bind", "/dev", "/dev", "--proc"`, "./internal/exec/toolserver", "TestDevices"},
	{"P113", "internal/exec/toolserver/watch.go", `	list := w.clients[key]`, "	for other := range w.clients {\n\t\tkey = other\n\t}\n\tlist := w.clients[key]", "./internal/exec/toolserver", "TestForward"},
	{"P113", "internal/serve/front/exposed.go", `	case p.watched[uri] == on:
		return false, nil
`, ``, "./internal/serve/front", "TestWatchingIsForwardedOnce"},
	{"P114", "internal/serve/front/http.go", `int(min(max(r.ContentLength, 0), maxPrealloc))`, `int(max(r.ContentLength, 0))`, "./internal/serve/front", "TestAnnouncedBodyIsNotAllocated"},
	{"P115", "internal/gateway/guards.go", `if rawjson.Twice(raw) {`, `if false {`, "./internal/gateway", "TestAnswersAreReadInOneWay"},
	{"P115", "internal/gateway/guard/schema.go", `|| result.IsValid() {`, `|| true {`, "./internal/gateway/guard", "TestCheckedValueIsReadInOneWay"},
	{"P116", "internal/gateway/forward.go", `if len(f.Params) > 0 {`, `if false {`, "./internal/gateway", "TestForwardIsReadInOneWay"},
	{"P117", "internal/gateway/act.go", `g.guards.redact(call.AsRefusal(stageAct, err))`, `call.AsRefusal(stageAct, err)`, "./internal/gateway", "TestRefusalsAreScanned"},
	{"P118", "internal/gateway/approval/approval.go", `case held+int64(size) > maxPendingBytes:`, `case false:`, "./internal/gateway/approval", "TestPendingBytesAreBounded"},
	{"P119", "internal/gateway/approve.go", `if len(p.More) > 0 {`, `if false {`, "./internal/gateway", "TestUnaskedAnswersAreNotApproved"},
	{"P120", "internal/serve/front/rounds.go", `||
		!questions.IsValid() || rawjson.Twice(questions)) {`, `) {`, "./internal/serve/front", "TestServersAskOnlyWhatIsExposed"},
	{"P121", "internal/supply/pack/npm.go", `"--git="+noGit, `, ``, "./internal/supply/pack", "TestHostileNPM"},
	{"P121", "internal/supply/pack/python.go", `sys.addaudithook(hook)`, ``, "./internal/supply/pack", "TestHostileWheel"},
	{"P122", "internal/supply/pack/environ.go", `return !wanted(name)`, `return name == ""`, "./internal/supply/pack", "TestEnviron"},
	{"P123", "internal/supply/registry/listing.go", `if pack.MachineVariable(name) {`, `if false {`, "./internal/supply/registry", "TestRecipes"},
	{"P124", "internal/supply/registry/client.go", `if b.tokens == 0 {`, `if false {`, "./internal/supply/registry", "TestRegistryIsBounded"},
	{"P125", "internal/supply/registry/resolve.go", `if !r.trusted(ctx, f, with) {`, `if false {`, "./internal/supply/registry", "TestStrangersLock"},
	{"P125", "internal/supply/registry/trust.go", `	}{id, recipe, with})`, `	}{id, recipe, lockedExtras{}})`, "./internal/supply/registry", "TestStrangersLists"},
	{"P125", "internal/supply/pack/package.go", `if !anyList && !exists(`, `if !anyList && false && !exists(`, "./internal/supply/pack", "TestDependenciesOfALock"},
	{"P125", "internal/supply/registry/resolve.go", `case locked == nil:`, `case locked == nil || locked.Resolved == nil:`, "./internal/supply/registry", "TestStrangersLists"},
	{"P126", "internal/store/journal/wal/wal.go", `return f.Number < w.number-1`, `return f.Number < w.number`, "./internal/store/journal/wal", "TestFileThatIsBeingMadeIsNotOver"},
	{"P127", "internal/store/journal/post.go", `if err := j.posting.syncFolder(j.posting.dir); err != nil {`, `if err := error(nil); err != nil {`, "./internal/store/journal", "TestRowOutlivesItsFile"},
	{"P128", "internal/store/journal/erase.go", `if err == nil && !ed25519.Verify(`, `if err == nil && e.By == nil && !ed25519.Verify(`, "./internal/store/journal", "TestForgedErasures"},
	{"P129", "internal/store/backup/restore.go", `cmp.Compare(rank(b.rel), rank(a.rel))`, `cmp.Compare(rank(a.rel), rank(b.rel))`, "./internal/store/backup", "TestInterruptedRestore"},
	{"P130", "internal/store/backup/backup.go", `err != nil || !bytes.Equal(now, root) {`, `err != nil || !bytes.Equal(now, root) && root == nil {`, "./internal/store/backup", "TestBackupAcrossARotation"},
	{"P131", "internal/cli/new.go", `err := os.Link(old, file)`, `err := os.Rename(old, file)`, "./internal/cli", "TestBackupIsWrittenToAFileOfItsOwn"},
	{"P132", "internal/cli/neighbours.go", `err = soleID(found.Manifest)`, `err = nil`, "./internal/cli", "TestScripts/neighbours"},
	{"P133", "internal/gateway/policy/canonical.go", `case ok && (b <= ' '-1 ||`, `case ok && inURL && (b <= ' '-1 ||`, "./internal/gateway/policy", "TestComparedPathsAreCanonical"},
	{"P133", "internal/gateway/policy/canonical.go", `case r == '\\':`, `case r == '\\' && inURL:`, "./internal/gateway/policy", "TestComparedPathsAreCanonical"},
	{"P133", "internal/gateway/policy/context.go", `compared := t.isRead && !t.isName &&`, `compared := t.isRead && t.isName &&`, "./internal/gateway/policy", "TestComparedPathsAreCanonical"},
	{"P133", "internal/gateway/policy/uses.go", `	return strings.Map(func(r rune) rune {`, `	if name != "" {
		return name
	}
	return strings.Map(func(r rune) rune {`, "./internal/gateway/policy", "TestNamesOfArguments"},
	{"P133", "internal/gateway/policy/places.go", `p.addForForbid(joined, folders(joined))`, `_ = joined`, "./internal/gateway/policy", "TestRelativeToAnArgument"},
	{"P134", "internal/supply/pack/compare.go", `if key == platform() {`, `if false {`, "./internal/exec/lock", "TestRelocked"},
	{"P134", "internal/cli/installconsent.go", `d.Widened = append(d.Widened, relocked...)`, `_ = relocked`, "./internal/cli", "TestScripts/install-no"},
	{"P134", "internal/exec/lock/review.go", `return lockedFirst(now), nil`, `return nil, nil`, "./internal/exec/lock", "TestRelocked"},
	{"P135", "internal/store/state/postgres/postgres.go", `(c == nil || c.InsecureSkipVerify)`, `(c == nil)`, "./internal/store/state/postgres", "TestUnproven"},
	{"P136", "internal/gateway/policy/live.go", `		select {
		case l.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
`, `		return l.current.Load(), nil
`, "./internal/gateway/policy", "TestRevokedWhileItIsRead"},
	{"P137", "internal/gateway/intend.go", `if err = g.store.Journal.InForce(tx); err != nil {`, `if err != nil {`, "./internal/gateway", "TestNothingIsSentAfterRotation"},
	{"P138", "internal/exec/toolserver/server.go", `	s.resubscribe(conn)
`, ``, "./internal/exec/toolserver", "TestWatchedAgain"},
	{"P98", "internal/gateway/egress/proxyswap.go", `if !c.link.network.count(int64(n)) {`, `if false {`, "./internal/gateway/egress", "TestSwapHeadsAreBounded"},
	{"P69", "internal/gateway/egress/audience.go", `	return AudienceHost(net.JoinHostPort(host, port))`, "	_ = port\n\treturn bare(host), nil", "./internal/serve/login", "TestLoopbackWithoutPort"},
	{"P03", "internal/supply/skill/tools.go", `case almostSection(line):`, `case false:`, "./internal/supply/skill", "TestMisspelledToolsHeading"},
	{"P42", "internal/supply/unzip/unzip.go", `d.left < 0 {
		return 0, ErrTooMany`, `false {
		return 0, ErrTooMany`, "./internal/supply/unzip", "TestSwollen"},
	{"P139", "internal/store/backup/backup.go", `"registry/given", "registry/pins", `, ``, "./internal/store/backup", "TestTrustComesBack"},
	{"P140", "internal/store/identity/begun.go", `return "", cmp.Or(db.Read(ctx, func(tx state.Tx) error { return checkReplaced(tx, keys) }), ErrOtherRoot)`, `_ = cmp.Or[error]; return keys[0], nil`, "./internal/store", "TestOtherRoot"},
	{"P140", "internal/store/identity/begun.go", `			return look(tx)`, `			inForce = first; return nil`, "./internal/store/identity", "TestBeginOvertaken"},
	{"P140", "internal/store/store.go", `		b.apart = ErrInterrupted`, ``, "./internal/store", "TestInterruptedRotation"},
	{"P140", "internal/store/store.go", `err = identity.Unbegun(ctx, db, h.Root())`, `_ = identity.Unbegun`, "./internal/store", "TestLostRoot"},
	{"P140", "internal/store/identity/keys.go", `if !errors.Is(storeErr, fs.ErrNotExist) {`, `if false && storeErr != nil {`, "./internal/store/identity", "TestLostRootIsNotReplaced"},
	{"P141", "internal/exec/lock/lock.go", `if d, changed := pack.Repinned(s.Alias, pin, folder, p); changed {`, `if d, changed := pack.Repinned(s.Alias, pin, folder, p); changed && false {`, "./internal/cli", "TestScripts/lock-pinned"},
	{"P142", "internal/store/identity/apikey.go", `	return a.Note(tx, c)`, `	return nil`, "./internal/cli", "TestScripts/key"},
	{"P143", "internal/exec/toolserver/callers.go", `	s.first = now
`, ``, "./internal/serve/host", "TestStoppedServerNeedsSameTools"},
	{"P143", "internal/exec/toolserver/supervise.go", `			if drifted(why) {
				return
			}
`, ``, "./internal/serve/host", "TestLazyStaysQuarantined"},
	{"P144", "internal/store/state/sqlite/sqlite.go", "\t\t`PRAGMA secure_delete = ON`, // overwrite deleted data with zeros\n", "", "./internal/store/journal", "TestErasedBytesAreGone"},
	{"P144", "internal/store/journal/erase.go", `return erased, j.db.Scrub(ctx)`, `return erased, nil`, "./internal/store/journal", "TestErasedBytesAreGone"},
	{"P145", "internal/store/rotate.go", `unlock, err := lockRoot(ctx, h)`, `unlock, err := func() {}, error(nil)`, "./internal/store", "TestRotateOneByOne"},
	{"P145", "internal/store/rotate.go", `if err := identity.Replaceable(h.Root()); err != nil {`, `if err := error(nil); err != nil {`, "./internal/cli", "TestScripts/rotate"},
	{"P146", "internal/supply/importer/arguments.go", `	if w.replaced {`, `	if false {`, "./internal/supply/importer", "TestSomethingElse"},
	{"P147", "internal/cli/secret.go", `if o.broken != "" {`, `if false {`, "./internal/cli", "TestScripts/secret-name"},
	{"P148", "internal/gateway/showable.go", `if !p.checked {`, `if false {`, "./internal/gateway", "TestRefusedCallsAreImpersonal"},
	{"P56", "internal/gateway/gateway.go", `	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.options.Rules)`, `	if p.Parent != "" {
		return nil
	}
	d := gate.Decide(ctx, g.Agent(), g.name, p.tool, p.Call, g.options.Rules)`, "./internal/test/adversary", "TestDeputyIsNotConfused"},
	{"P56", "internal/serve/daemon/compose.go", `	return v.running.Call(ctx, c)`, `	c.Principal = "owner@local"
	return v.running.Call(ctx, c)`, "./internal/test/adversary", "TestDeputyIsNotConfused"},
	{"P53", "internal/serve/daemon/compose.go", `Name: c.Principal, Everywhere: true}`, `Name: c.Principal}`, "./internal/test/adversary", "TestDeputyIsNotConfused"},
	{"P53", "internal/store/identity/principal.go", `return p.Admin || p.Everywhere || slices.Contains(p.Agents, agent)`, `return p != nil || slices.Contains(p.Agents, agent)`, "./internal/test/adversary", "TestDeputyIsNotConfused"},
	{"P64", "internal/exec/sandbox/cgroup_linux.go", `strconv.FormatInt(b.pids, 10)`, `strconv.FormatInt(b.pids*100, 10)`, "./internal/exec/sandbox", "TestProcessesAreBounded"},
	{"P64", "internal/exec/sandbox/cgroup_linux.go", `max(int64(b.cpu*cpuPeriod), 1000)`, `max(int64(b.cpu*8*cpuPeriod), 1000)`, "./internal/exec/sandbox", "TestCPUIsBounded"},
	{"P64", "internal/exec/sandbox/run_linux.go", `time.NewTimer(s.Wall - time.Since(begun))`, `time.NewTimer(time.Hour)`, "./internal/exec/sandbox", "TestDeadline"},
	{"P48", "internal/serve/console/console.go", `script-src 'self';`, `script-src 'self' 'unsafe-inline';`, "./internal/test/adversary", "TestConsoleShowsTextAsText"},
	{"P49", "internal/serve/console/session.go", `SameSite: http.SameSiteStrictMode`, `SameSite: http.SameSiteLaxMode`, "./internal/serve/console", "TestSessionStaysAtItsAddress"},
	{"P94", "internal/serve/daemon/serve.go", `ReadTimeout: requestTime, IdleTimeout`, `IdleTimeout`, "./internal/serve/daemon", "TestTooSlow"},
	{"P63", "internal/exec/sandbox/run_linux.go", `			f.Close()
		}
		if n == 0 {`, `			_ = f
		}
		if n == 0 {`, "./internal/exec/sandbox", "TestDescriptorsOfMessages"},
	{"P73", "internal/store/state/sqlite/tx.go", `errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):`, `errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTTY):`, "./internal/test/faults", "TestReadOnlyHome"},
	{"P149", "internal/store/identity/keys.go", `	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {`, `	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {`, "./internal/store/identity", "TestRootIsForItsUserAlone"},
	{"P149", "internal/store/journal/wal/wal.go", `os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)`, `os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)`, "./internal/test/adversary", "TestHomeIsForItsUserAlone"},
	{"P149", "internal/store/home/replace.go", `	if mode != 0o600 {`, `	if mode |= 0o044; mode != 0o600 {`, "./internal/test/adversary", "TestHomeIsForItsUserAlone"},
	{"P150", "internal/serve/daemon/fleet.go", `if lost := old.lost(found); len(lost) > 0 {`, `if lost := old.lost(found); len(lost) > len(found) {`, "./internal/serve/daemon", "TestReloadKeepsWorkingAgents"},
	{"P150", "internal/serve/daemon/fleet.go", `if lost := old.unproven(fresh); len(lost) > 0 {`, `if lost := old.unproven(fresh); len(lost) > len(fresh) {`, "./internal/serve/daemon", "TestReloadKeepsWorkingAgents"},
	{"P260", "internal/exec/toolserver/prepare.go", `if slices.Contains(s.spec.ArgRefs, m[1]) {`, `if len(m) > 0 {`, "./internal/exec/toolserver", "TestCredentialsInTheArguments"},
	{"P261", "internal/supply/importer/arguments.go", `	case !settingFlag.MatchString(flag) && passphrase(value), flag`, `	case flag`, "./internal/supply/importer", "TestBareSecrets"},
	{"P81", "internal/supply/importer/arguments.go", `		w.understood = joined && !w.isShort(arg)`, `		w.understood = true`, "./internal/supply/importer", "TestSomethingElse"},
	{"P117", "internal/gateway/gateway.go", `return g.guards.redact(&own)`, `return &own`, "./internal/gateway", "TestClosedGatewayRedactsSecrets"},
	{"P117", "internal/serve/host/health.go", `		return g.Redact(r)
`, `		return r
`, "./internal/serve/host", "TestFailureIsRedacted"},
	{"P151", "internal/exec/sandbox/bubblewrap_linux.go", `range s.programs.folders {`, `range append(s.programs.folders, "/usr/sbin") {`, "./internal/exec/sandbox", "TestNoOtherProgram"},
	{"P151", "internal/exec/sandbox/programs_linux.go", `p.covered = append(p.covered, programsIn(at)...)`, `_ = programsIn`, "./internal/exec/sandbox", "TestNoOtherProgram"},
	{"P172", "internal/gateway/approval/show.go", `lines[i] = diag.Printable(line)`, `lines[i] = line`, "./internal/serve/console", "TestWaitingCalls"},
	{"P172", "internal/serve/console/approvals.go", `w.Shown, w.Cut = fit(text, n)`, `w.Shown, w.Cut = fit(text, len(text))`, "./internal/serve/console", "TestWaitingCalls"},
	{"P174", "internal/store/identity/apikey.go", `k.Changed = k.Revoked.IsZero() && !v.Has(k.row())`, `_ = v`, "./internal/store/identity", "TestKeysOfOthers"},
	{"P174", "internal/store/identity/apikey.go", `if revoked = rows > 0 || registered; err`, `if _, revoked = registered, rows > 0; err`, "./internal/store/identity", "TestKeysOfOthers"},
	{"P174", "internal/gateway/approval/approval.go", `return q.State == Approved && v.Has(q.row())`, `return q.State == Approved && v != nil`, "./internal/gateway/approval", "TestAnswersOfOthers"},
	{"P174", "internal/gateway/approval/approval.go", `return err == nil && b.Keys.SameMAC(q.macPurpose(), arguments, q.storedMAC)`, `return err == nil`, "./internal/gateway/approval", "TestAnswersOfOthers"},
	{"P174", "internal/supply/bundle/review/review.go", `|| r.Verdict == Approved && !v.Has(r.row()) {`, `|| v == nil {`, "./internal/supply/bundle/review", "TestReviewsOfOthers"},
	{"P174", "internal/store/authority/authority.go", `|| subtle.ConstantTimeCompare(r.sign(v), v.MAC) == 0 {`, `|| subtle.ConstantTimeCompare(nil, nil) == 0 {`, "./internal/store/authority", "TestOthersCannotChange"},
	{"P175", "internal/store/authority/authority.go", `t.last = v.Head
	_, err = tx.Exec(`, `_ = t
	_, err = tx.Exec(`, "./internal/store/authority", "TestOlderThanItsOwnChange"},
	{"P175", "internal/store/authority/db.go", `if kept.Version > d.seen.Version {`, `if false && kept.Version > 0 {`, "./internal/store/authority", "TestOlderThanItsOwnChange"},
	{"P174", "internal/gateway/approval/approval.go", `|| q.Over(now) || !bytes.Equal(q.storedMAC, made.mac(b)) {`, `|| q.Over(now) || made == nil {`, "./internal/gateway/approval", "TestAnswersOfOthers"},
	{"P174", "internal/gateway/approval/approval.go", `q.ID, q.Call, q.Asked.UnixMicro(), q.Expires.UnixMicro())`, `q.ID, q.Call, 0, 0)`, "./internal/gateway/approval", "TestAnswersOfOthers"},
	{"P175", "internal/store/authority/authority.go", `h.Version > seen.Version || h.equal(seen)`, `h.Version > 0`, "./internal/store/authority", "TestOlderRegister"},
	{"P175", "internal/store/authority/db.go", `d.memory.keep(ctx, t.last, t.adopted); err != nil && d.Warn != nil {`, `ctx.Err(); err != nil {`, "./internal/store/authority", "TestOlderRegister"},
	{"P176", "internal/gateway/forward.go", `g.options.Rules).Refusal(); stopped != nil {`, `g.options.Rules).Refusal(); stopped != nil && f == nil {`, "./internal/gateway", "TestForwardPassesTheGate"},
	{"P177", "internal/gateway/limit/bytes.go", `case b.by[principal]+n > b.Each:`, `case false:`, "./internal/serve/front", "TestBusy"},
	{"P177", "internal/gateway/limit/bytes.go", `case b.all+n > b.All:`, `case false:`, "./internal/gateway/limit", "TestBytes"},
	{"P177", "internal/gateway/limit/bytes.go", `func (b *Body) Release() { b.bytes.remove(b.principal, b.read) }`, `func (b *Body) Release() {}`, "./internal/gateway/limit", "TestBytesAreReleased"},
	{"P172", "internal/gateway/guard/view/lookalike.go", `mixesAlphabets(word) || ASCII(v.Text) && len(reads) > 2`, `false && reads != ""`, "./internal/gateway/guard/view", "TestLookAlikes"},
	{"P178", "internal/exec/dispatch/work.go", `if err == nil && asked.Digest != "" && asked.Digest != digest {`, `if false {`, "./internal/exec/dispatch", "TestIntentIsBoundToItsAgent"},
	{"P173", "internal/serve/front/http.go", `if req.Method == "subscriptions/listen" {
		var end func()`, `if r.Header.Get("Mcp-Method") == "subscriptions/listen" {
		var end func()`, "./internal/serve/front", "TestStreamsEndWithTheirContext"},
	{"P171", "internal/exec/action/request.go", `|| !whole && strings.Contains(segment, "/")`, ``, "./internal/exec/action", "TestAddress"},
	{"P171", "internal/exec/action/request.go", `segment = plain
`, `break
`, "./internal/exec/action", "TestAddress"},
	{"P171", "internal/exec/action/request.go", `if found, _ := agent.Placeholders(template); len(found) > 0 {`, `if false {`, "./internal/exec/action", "TestUnknownBodies"},
	{"P270", "internal/exec/action/parts.go", `if strings.ContainsAny(member, "[]") {`, `if false {`, "./internal/exec/action", "TestOptionalParts"},
	{"P270", "internal/exec/action/parts.go", `text, err = percent(text)`, `err = nil`, "./internal/exec/action", "FuzzParts"},
	{"P270", "internal/manifest/findagent/template.go", `!at.isPart(v.Text(), ph)):`, `false):`, "./internal/manifest/findagent", "TestPlaceholders"},
	{"P271", "internal/supply/importer/openapiref.go", `os.OpenRoot(d.folder)`, `os.OpenRoot(filepath.Dir(d.folder))`, "./internal/supply/importer", "TestReferences"},
	{"P163", "internal/exec/toolserver/mounts.go", `if mount.Write && protected(mount.Source, readOnly) {`, `if mount.Write && protected(mount.Source, nil) {`, "./internal/cli", "TestScripts/write-manifest"},
	{"P166", "internal/exec/sandbox/run_linux.go", `unsupervised := r.supervised && !r.notified || r.failed != nil`, `unsupervised := false`, "./internal/exec/sandbox", "TestUnsupervised"},
	{"P166", "internal/exec/sandbox/shim/filter_linux.go", `Val: unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, SkipFalse: 1}, eperm, allow,`, `Val: 1 << 30, SkipFalse: 1}, eperm, allow,`, "./internal/exec/sandbox", "TestOwnListener"},
	{"P156", "internal/exec/sandbox/supervisor/supervisor_linux.go", `s.Moving.RLock()
		defer s.Moving.RUnlock()`, ``, "./internal/exec/sandbox", "TestMovesWaitForTheMeasure"},
	{"P165", "internal/exec/sandbox/supervisor/replace_linux.go", `info.Size() > 2*512*stored.Blocks+maxHoles`, `info.Size() > stored.Blocks+maxHoles<<20`, "./internal/exec/sandbox", "TestReplaceFile"},
	{"P170", "internal/gateway/guard/validate/evaluate.go", `e.spend(p.work(text))`, `e.spend(1)`, "./internal/gateway/guard/validate", "TestWorkIsCounted"},
	{"P170", "internal/gateway/guard/validate/pattern.go", `if format.Name != "regex" {`, `if true {`, "./internal/gateway/guard/validate", "TestHostile"},
	{"P170", "internal/gateway/guard/validate/evaluate.go", `e.err = ErrTooMuchWork
		return false`, `return false`, "./internal/gateway/guard/validate", "TestWorkIsBounded"},
	{"P170", "internal/gateway/guard/validate/evaluate.go", `case before>>12 != e.work>>12:`, `case before < e.work:`, "./internal/gateway/guard/validate", "TestStopsWhenTheCallerLeaves"},
	{"P170", "internal/gateway/guard/validate/pattern.go", `if s.read%s.every == 0 && s.ctx.Err() != nil || s.text == "" {`, `if s.text == "" {`, "./internal/gateway/guard/validate", "TestStopsWhenTheCallerLeaves"},
	{"P170", "internal/gateway/admit.go", `if err := validate.Bounds(p.Arguments); err != nil {`, `if err := validate.Bounds(nil); err != nil {`, "./internal/gateway", "TestCall"},
	{"P151", "internal/exec/sandbox/shim/restrict_linux.go", `err := cover(p.Cover)`, `err := cover(nil)`, "./internal/exec/sandbox", "TestNoOtherProgram"},
	{"P151", "internal/exec/sandbox/programs_linux.go", `p.hidden = append(p.hidden, dir)`, `_ = dir`, "./internal/exec/sandbox", "TestNoOtherProgram"},
	{"P151", "internal/exec/sandbox/supervisor/supervisor_linux.go", `notify.fail(c, unix.EACCES)`, `notify.resume(c)`, "./internal/exec/sandbox", "TestHostile"},
	{"P152", "internal/exec/sandbox/shim/landlock_linux.go", `handled &^= unix.LANDLOCK_ACCESS_FS_EXECUTE`, `handled &^= 0`, "./internal/exec/sandbox", "TestSwappedPath"},
	{"P152", "internal/exec/sandbox/supervisor/supervisor_linux.go", `if first || !s.NoExec || s.listed(path) {`, `if first || !s.NoExec || len(s.Programs) > 0 {`, "./internal/exec/sandbox", "TestListedPrograms"},
	{"P153", "internal/exec/sandbox/shim/restrict_linux.go", `Attr_set: unix.MOUNT_ATTR_NOEXEC}`, `Attr_set: unix.MOUNT_ATTR_NOSUID}`, "./internal/exec/sandbox", "TestWrittenCodeIsNotExecuted"},
	{"P153", "internal/exec/sandbox/shim/filter_linux.go", `Val: unix.MFD_NOEXEC_SEAL, SkipTrue: 1}, enosys, allow,`, `Val: unix.MFD_NOEXEC_SEAL, SkipTrue: 1}, allow, allow,`, "./internal/exec/sandbox", "TestWrittenCodeIsNotExecuted"},
	{"P154", "internal/exec/sandbox/bubblewrap_linux.go", `a = append(a, "--size", memoryDisk, "--tmpfs", "/tmp")`, `a = append(a, "--bind", "/tmp", "/tmp")`, "./internal/test/adversary", "TestConfinedServer"},
	{"P154", "internal/exec/sandbox/bubblewrap_linux.go", `a, seals = append(a, "--tmpfs", m.To), append(seals, "--remount-ro", m.To)`, `_ = seals`, "./internal/exec/sandbox", "TestHostile"},
	{"P155", "internal/gateway/egress/network.go", `if l.host, err = p.judge(l.host, l.port); err != nil {`, `if err != nil {`, "./internal/exec/sandbox", "TestHostile"},
	{"P155", "internal/exec/sandbox/bubblewrap_linux.go", `bwrap, "--unshare-all", "--unshare-user",`, `bwrap, "--unshare-all", "--share-net", "--unshare-user",`, "./internal/exec/sandbox", "TestHostile"},
	{"P156", "internal/exec/sandbox/shim/restrict_linux.go", `{unix.RLIMIT_NPROC, cmp.Or(p.Processes, unix.RLIM_INFINITY)},`, `{unix.RLIMIT_NPROC, cmp.Or(0, uint64(unix.RLIM_INFINITY))},`, "./internal/exec/sandbox", "TestLimitsWithoutCgroups"},
	{"P156", "internal/exec/sandbox/prepare_linux.go", `plan.Memory = uint64(r.shape.bounds.memory)`, `plan.Memory = 0`, "./internal/exec/sandbox", "TestLimitsWithoutCgroups"},
	{"P156", "internal/exec/sandbox/folders_linux.go", `r.tooLarge("disk")`, `_ = folder`, "./internal/exec/sandbox", "TestPrivateFolderIsBounded"},
	{"P156", "internal/exec/sandbox/run_linux.go", `size > shape.disk {`, `size < 0 {`, "./internal/exec/sandbox", "TestPrivateFolderIsBounded"},
	{"P157", "internal/exec/sandbox/run_linux.go", "\t\t\tr.askToExit(s.Grace)\n", ``, "./internal/exec/sandbox", "TestEndsBySIGTERM"},
	{"P158", "agent/access.go", `b.Alias != s.Alias || !a.Callable(t) {`, `b.Alias != s.Alias {`, "./agent", "TestAccess"},
	{"P159", "agent/access.go", `	if at > end {`, `	if false {`, "./agent", "TestAccessMentions"},
	{"P160", "internal/serve/host/access.go", `|| !r.Policy.Possible(r.Agent, r.Name, &t)`, ``, "./internal/serve/host", "TestGrantedAccess"},
	{"P160", "internal/serve/host/access.go", `access := r.granted(s).Access(s)`, `access := r.granted(s).Access(s).With(s.Proposed)`, "./internal/serve/host", "TestGrantedAccess"},
	{"P161", "internal/serve/daemon/facts.go", `if out.Confined && len(access.Of(kind)) == 0 {`, `if len(access.Of(kind)) == 0 {`, "./internal/serve/daemon", "TestServerAccess"},
	{"P162", "internal/exec/allowance/allowance.go", `|| !v.Has(a.row())`, `|| v == nil`, "./internal/exec/allowance", "TestModifiedRows"},
	{"P163", "internal/exec/toolserver/mounts.go", `case real != right.What && !access.Allows(moved):`, `case false:`, "./internal/exec/toolserver", "TestDeclared"},
	{"P163", "internal/exec/toolserver/mounts.go", `			mounts = append(mounts, sandbox.Mount{Source: dir, To: at(dir), Write: true, AsOwner: m.AsOwner})`, `			_ = dir`, "./internal/exec/toolserver", "TestProtect"},
	{"P163", "internal/exec/sandbox/shim/restrict_linux.go", `if st.Dev != m.Device || st.Ino != m.Inode {`, `if false {`, "./internal/exec/sandbox/shim", "TestCheckMounts"},
	{"P164", "internal/exec/toolserver/prepare.go", `if len(want.Scripts) > 0 {`, `if false {`, "./internal/exec/toolserver", "TestScriptsOfALockFile"},
	{"P164", "internal/serve/host/lostlock.go", `case newest == noLock:`, `case false:`, "./internal/cli", "TestScripts/lock-appears"},
	{"P165", "internal/exec/sandbox/supervisor/intime_linux.go", `func() { unix.Shutdown(socket, unix.SHUT_RDWR) }`, `func() {}`, "./internal/exec/sandbox/supervisor", "TestConnectionThatGetsNoAnswer"},
	{"P166", "internal/exec/sandbox/supervisor/unix_linux.go", `if err == nil && !slices.Contains(s.Private, mount) {`, `if false && !slices.Contains(s.Private, mount) {`, "./internal/exec/sandbox", "TestHostile"},
	{"P166", "internal/exec/sandbox/supervisor/connect_linux.go", "	if err := s.connectCopy(ctx, notify, c); err != nil {\n", "	address, err := c.address()\n	if to, ok := parseAddress(address); err == nil && ok && to.Addr().IsLoopback() {\n		notify.resume(c)\n		return\n	}\n	if err := s.connectCopy(ctx, notify, c); err != nil {\n", "./internal/exec/sandbox", "TestHostile"},
	{"P166", "internal/exec/sandbox/prepare_linux.go", `plan.UnixSockets = plan.Network && !plan.NoExec &&`, `plan.UnixSockets = plan.Network &&`, "./internal/exec/sandbox", "TestUnixSockets"},
	{"P165", "internal/exec/sandbox/supervisor/intime_linux.go", `unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)`, `_ = thread`, "./internal/exec/sandbox/supervisor", "TestSocketThatLingers"},
	{"P165", "internal/exec/sandbox/supervisor/unix_linux.go", `unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 1})`, ``, "./internal/exec/sandbox", "TestFullUnixSocket"},
	{"P166", "internal/exec/sandbox/supervisor/unix_linux.go", `!slices.Contains(s.Private, mount)`, `slices.Contains(s.Private, ^mount)`, "./internal/exec/sandbox", "TestMovedPrivateFolder"},
	{"P167", "internal/exec/sandbox/shim/filter_linux.go", `range modeCalls {`, `range map[uint32]uint32{} {`, "./internal/exec/sandbox", "TestHostile"},
	{"P167", "internal/exec/sandbox/shim/filter_linux.go", `range createCalls {`, `range map[uint32][2]uint32{} {`, "./internal/exec/sandbox", "TestHostile"},
	{"P167", "internal/exec/sandbox/shim/filter_linux.go", `when(unix.SYS_OPENAT2, enosys)`, ``, "./internal/exec/sandbox", "TestHostile"},
	{"P168", "internal/exec/sandbox/shim/filter_linux.go", `Val: unix.F_SETLEASE,`, `Val: unix.F_SETLEASE + 1<<16,`, "./internal/exec/sandbox", "TestHostile"},
	{"P168", "internal/exec/sandbox/prepare_linux.go", `int(binary.BigEndian.Uint32(sum[:])%uint32(m.users.count))`, `int(binary.BigEndian.Uint32(sum[:])%1)`, "./internal/exec/sandbox", "TestUsersOfServers"},
	{"P169", "internal/supply/pack/package.go", `os.O_RDONLY|syscall.O_NONBLOCK`, `os.O_RDONLY|syscall.O_NONBLOCK&0`, "./internal/supply/pack", "TestLockThatIsAPipe"},
	{"P169", "internal/serve/daemon/folder.go", `os.O_RDONLY|syscall.O_NONBLOCK`, `os.O_RDONLY|syscall.O_NONBLOCK&0`, "./internal/serve/daemon", "TestLockThatIsAPipe"},
	{"P190", "internal/gateway/egress/proxyswap.go", `		if text == swap.Placeholder {
			return swap.Value()
		}`, `		text = strings.ReplaceAll(text, swap.Placeholder, swap.Value())`, "./internal/gateway/egress", "TestSwap"},
	{"P190", "internal/gateway/guard/secret/echo.go", `matches := e.findParts(text, nil)`, `matches := []Match(nil)`, "./internal/gateway/egress", "TestSwapMasksParts"},
	{"P190", "internal/gateway/guard/secret/echo.go", `		plain[i] = lower(byte(i))`, `		plain[i] = byte(i)`, "./internal/gateway/guard/secret", "TestEchoFindsParts"},
	{"P191", "internal/supply/pack/local.go", `case want.Tree != "" && p.Tree != want.Tree:`, `case false:`, "./internal/cli", "TestScripts/lock-project"},
	{"P191", "internal/supply/pack/project.go", `case rel == ".git" && d.IsDir():`, `case strings.HasPrefix(rel, ".") && d.IsDir():`, "./internal/supply/pack", "TestProject"},
	{"P191", "internal/exec/toolserver/prepare.go", `l.digest.Uncovered = p.Uncovered(s.wantedPackage().Tree != "")`, ``, "./internal/cli", "TestScripts/lock-project"},
	{"P65", "internal/exec/program/program.go", `if b.options.Unconfined && b.agent.Program.Isolation != "" {`, `if false {`, "./internal/exec/program", "TestNeverLess"},
	{"P65", "internal/exec/program/program.go", `if b.agent.Program.Isolation == agent.StrongIsolation {`, `if false {`, "./internal/exec/program", "TestNeverLess"},
	{"P180", "internal/exec/credential/secret.go", `return c.value, c.kind != JSON && !account`, `return c.value, !account`, "./internal/exec/action", "TestWholeJSON"},
	{"P180", "internal/exec/credential/token.go", `err := Audience(e.client.Switches(), req, e.slot, e.key)`, `var err error`, "./internal/exec/action", "TestServiceAccountRefused"},
	{"P180", "internal/exec/credential/token.go", `return http.ErrUseLastResponse`, `return nil`, "./internal/exec/action", "TestServiceAccountRefused"},
	{"P181", "internal/serve/daemon/fleet.go", `p.Kind == identity.ByKey && needsSignIn(e.agent())`, `false`, "./internal/serve/daemon", "TestSignInRequired"},
	{"P182", "internal/serve/daemon/ui.go", `|| t.Who.Kind == identity.Local && t.Who.KeyID != d.run`, ``, "./internal/serve/daemon", "TestUICalls"},
	{"P182", "internal/serve/daemon/ui.go", `d.standing(ctx, &t.Who) != nil`, `false`, "./internal/serve/daemon", "TestUITicketEndsWithItsKey"},
	{"P182", "internal/serve/daemon/ui.go", `d.sealTicket(forPages, *t)`, `r.PathValue("ticket")`, "./internal/serve/daemon", "TestUIPages"},
	{"P182", "internal/serve/daemon/ui.go", `t := d.openTicket(r.Context(), forFrame, r.PathValue("ticket"))`, `t := d.openTicket(r.Context(), forPages, r.PathValue("ticket"))`, "./internal/serve/daemon", "TestUICalls"},
	{"P192", "internal/gateway/policy/grant.go", `condition = fmt.Sprintf("principal.id == %s && %s", literal(g.ID), condition)`, `condition = fmt.Sprintf("principal.id != %s || %s", literal(g.ID), condition)`, "./internal/gateway/policy", "TestGrantBelongsToOneAgent"},
	{"P192", "internal/cli/grant.go", `grants[i].ID = a.ID`, `_ = grants[i].ID`, "./internal/cli", "TestScripts/grant-scope"},
	{"P193", "internal/gateway/recover.go", `[]string{o.id, o.agent, o.digest, o.tool, o.principal, o.idem, string(o.record)}`, `[]string{o.id}`, "./internal/gateway", "TestChangedCallIsNotResent"},
	{"P193", "internal/gateway/recover.go", ` || !p.tool.Policy.Idempotent ||`, ` ||`, "./internal/gateway", "TestOnlyIdempotentCallsAreResent"},
	{"P194", "internal/gateway/remember.go", `[]string{id, g.name, p.Principal, p.IdempotencyKey}`, `[]string{id}`, "./internal/gateway", "TestMovedAnswerIsNotReplayed"},
	{"P177", "internal/serve/daemon/ui.go", `	r.Body = body
`, ``, "./internal/serve/daemon", "TestBytesOfPages"},
	{"P182", "internal/serve/daemon/ui.go", `t.Session != "" && d.signedOut(ctx, t.Session)`, `false`, "./internal/serve/daemon", "TestUITicketEndsWithItsSession"},
	{"P182", "internal/serve/daemon/ui.go", `if !end.IsZero() && end.Before(until) {`, `if false {`, "./internal/serve/daemon", "TestUITicketEndsWithItsSession"},
	{"P200", "internal/store/authority/memory.go", `return nil, &DamagedError{m.file, home.WithoutPath(err)}`, `return map[string]Head{}, nil`, "./internal/store/authority", "TestDamagedMemory"},
	{"P200", "internal/store/authority/db.go", `		d.Warn(fmt.Errorf(`, `		_ = (fmt.Errorf(`, "./internal/store/authority", "TestUnwritableMemory"},
	{"P201", "internal/store/state/postgres/postgres.go", `params["search_path"] = cmp.Or(params["search_path"], "public") + ", pg_temp"`, `_ = cmp.Or("")`, "./internal/store/state/postgres", "TestSchema"},
	{"P201", "internal/exec/dispatch/shared.go", `config, err := postgres.Config(q.options.URL, "ambit queue")`, `_, _ = postgres.Config("", "")
	config, err := pgxpool.ParseConfig(q.options.URL)`, "./internal/exec/dispatch", "TestQueueSchema"},
	{"P202", "internal/store/journal/handover.go", `		var ring *keyring
		if ring, err = newKeyring(key, list); err == nil {
			return ring.newest.String(), nil
		}`, `		_, _ = key, list
		return last, nil`, "./internal/store/identity", "TestBegin"},
	{"P202", "internal/store/journal/handover.go", `	ring, _, err := j.keyring(tx)
	switch {`, `	ring, err := &keyring{}, error(nil)
	switch {`, "./internal/store/journal", "TestForgedHandOverIsRefused"},
	{"P202", "internal/store/authority/authority.go", `case t.seen.Root == next.root:`, `case t.seen.Root == "":`, "./internal/store", "TestRolledBackRotation"},
	{"P190", "internal/gateway/guard/secret/echo.go", `return !public(name, s) })`, `return !public(name, s) && secretlike.Name(name) })`, "./internal/gateway/guard/secret", "TestEchoOfJSON"},
	{"P203", "internal/gateway/forward.go", `Arguments: ruleArguments(f)}`, `Arguments: f.Params}`, "./internal/gateway", "TestForwardPassesTheGate"},
	{"P204", "internal/exec/credential/token.go", `!slices.Contains(c.scopes, s) }); i >= 0 {`, `!slices.Contains(c.scopes, s) }); i > 1<<20 {`, "./internal/exec/credential", "TestSealedScopes"},
	{"P204", "internal/exec/credential/source.go", `return s.Of(id).ForScopes(w.Scopes), err`, `return s.Of(id).ForScopes([]string{"read", "write"}), err`, "./internal/exec/credential", "TestSealedScopes"},
	{"P210", "internal/gateway/guards.go", `w.rules.OnResult != agent.ResultRedact ||`, `true ||`, "./internal/gateway", "TestPersonalDataOfServers"},
	{"P215", "internal/gateway/guards.go", `clean, found, stopped := w.inject.Check(ctx, raw, holder)`, `clean, found, stopped := raw, []guard.Finding(nil), (*call.Refusal)(nil)`, "./internal/gateway", "TestInjectionsInEveryMessage"},
	{"P215", "internal/gateway/guard/injection.go", `return mark(out, found, holder), findings, nil`, `return out, findings, nil`, "./internal/gateway", "TestInjectionsInEveryMessage"},
	{"P216", "internal/gateway/guard/deny/deny.go", `if s.err = s.ctx.Err(); s.err != nil {`, `if false {`, "./internal/gateway/guard/deny", "TestFindAllStops"},
	{"P217", "internal/exec/toolserver/server.go", `return string(guard.Redact([]byte(s.maskKnown(text))))`, `_ = guard.Redact
	return s.maskKnown(text)`, "./internal/exec/toolserver", "TestUnknownSecretsAreRedacted"},
	{"P217", "internal/exec/toolserver/connect.go", `noise.Hide(string(line))`, `noise.Hide("") + string(line)`, "./internal/exec/toolserver", "TestUnknownSecretsAreRedacted"},
	{"P217", "internal/exec/program/program.go", `clean := string(guard.Redact([]byte(t.keys.Hide(text))))`, `clean := text`, "./internal/exec/program", "TestUnknownSecretsAreRedacted"},
	{"P217", "internal/exec/program/bundle.go", `return string(guard.Redact([]byte(out + line[at:])))`, `return out + line[at:]`, "./internal/exec/program", "TestUnknownSecretsAreRedacted"},
	{"P250", "internal/gateway/guard/secret/scan.go", `if at == 0 || !alnum[text[at-1]] || !alnum[text[at]] {`, `if at == 0 {`, "./internal/gateway/guard/secret", "TestFormats"},
	{"P251", "internal/gateway/guard/secret/copies.go", `	if len(s.copies.values) == 0 {`, `	if true {`, "./internal/gateway/guard/secret", "TestCopies"},
	{"P252", "internal/gateway/guard/secret/context.go", `	return a, !bytes.HasSuffix(text[:first], []byte("[secret:"))`, `	return a, true`, "./internal/gateway/guard/secret", "TestFormats"},
	{"P254", "internal/gateway/guard/secret/effort.go", `return s.effort > free+at*int(r)/8`, `return false`, "./internal/gateway/guard/secret", "TestSlowTexts"},
	{"P253", "internal/gateway/guard/secret/scan.go", `	return s.scanRuns(i, s.forms[i].text, depth, dst)`, `	return dst`, "./internal/gateway/guard/secret", "TestLayers"},
	{"P253", "internal/gateway/guard/secret/scan.go", `				return s.tryNoisy(text, start, end, f, dst)`, `				return dst`, "./internal/gateway/guard/secret", "TestLayers"},
	{"P218", "internal/cli/guard.go", `string(shown[:min(4, len(shown)/4)])`, `string(shown)`, "./internal/cli", "TestScripts/guard"},
	{"P220", "internal/gateway/policy/context.go", `if r.nameBytes += len(name); r.nameBytes > maxNameBytes {`, `if r.nameBytes += len(name); false {`, "./internal/gateway/policy", "TestLongArguments"},
	{"P220", "internal/gateway/policy/context.go", `if r.textBytes += len(s); r.textBytes > maxTextBytes {`, `if r.textBytes += len(s); false {`, "./internal/gateway/policy", "TestLongArguments"},
	{"P220", "internal/gateway/policy/context.go", `if err := r.ctx.Err(); err != nil {`, `if err := error(nil); err != nil {`, "./internal/gateway/policy", "TestReadingStops"},
	{"P221", "internal/gateway/policy/facts.go", `if m.known != nil && m.known.facts[key] != nil {`, `if false {`, "./internal/gateway/policy", "TestArgumentsAreReadOnce"},
	{"P221", "internal/gateway/intend.go", `if p.forwarded != nil {`, `if false {`, "./internal/gateway", "TestRedactedArgumentsAreReadBeforeTheWrite"},
	{"P222", "internal/gateway/approve.go", `	p.dropUnseenMeta()
`, ``, "./internal/gateway", "TestApprovedCallsCarryNoMeta"},
	{"P223", "internal/gateway/forward.go", `c.Skill = skillName{f.Skill}`, `_ = skillName{}`, "./internal/gateway", "TestForwardUnderASkill"},
	{"P223", "internal/serve/front/exposed.go", `f.Skill, _, _ = a.skillOf(r)`, `_, _, _ = a.skillOf(r)`, "./internal/serve/front", "TestExposedUnderASkill"},
	{"P224", "internal/gateway/approve.go", `shown := approval.Show(p.toSend())`, `shown := string(p.toSend())`, "./internal/gateway", "TestElicitationShowsWhatIsApproved"},
	{"P224", "internal/gateway/approval/show.go", `range view.LookAlikes(tool+" "+arguments, maxLookAlikes+1) {`, `range view.LookAlikes(tool+" "+arguments, 0) {`, "./internal/gateway", "TestElicitationShowsWhatIsApproved"},
	{"P225", "internal/exec/allowance/allowance.go", `a.Changed = a.Changed || a.Holder != h`, `_ = a`, "./internal/exec/allowance", "TestRowsOfAnotherServer"},
	{"P226", "internal/gateway/approval/show.go", `if i == maxLookAlikes {`, `if i == maxLookAlikes {
			break
		}
		if false {`, "./internal/gateway/approval", "TestManyLookAlikes"},
	{"P227", "internal/gateway/forward.go", `if stopped := g.permit(ctx, f, nil); stopped != nil {`, `if stopped := (*call.Refusal)(nil); stopped != nil {`, "./internal/gateway", "TestOwnPromptPassesTheGate"},
	{"P230", "internal/serve/front/publish.go", `if s.bytes.Load()+int64(len(e.params)) > maxQueuedBytes {`, `if false {`, "./internal/serve/front", "TestQueueIsBoundedInBytes"},
	{"P231", "internal/exec/mcpwire/serve.go", `size > MaxNotification {`, `size > 1<<30 {`, "./internal/exec/mcpwire", "TestLargeNotifications"},
	{"P231", "internal/exec/toolserver/connect.go", `s.warnLarge.Do(func() {`, `(func(f func()) { f() })(func() {`, "./internal/exec/toolserver", "TestLargeNotificationsAreReported"},
	{"P232", "internal/exec/dispatch/intent.go", `return f == nil || f.Principal == i.Principal && (f.Name == "" || f.Name == i.Name)`, `return true`, "./internal/serve/daemon", "TestAnswersOfOthers"},
	{"P232", "internal/exec/dispatch/intent.go", `	a.For = &answerFor{}
`, `	a.For = nil
`, "./internal/serve/daemon", "TestAnswersOfOthers"},
	{"P177", "internal/serve/daemon/routes.go", `return h.daemon.answerBytes.Take(caller, size)`, `_ = caller
		return func() {}, nil`, "./internal/serve/daemon", "TestAnswersInProgress"},
	{"P177", "internal/serve/front/stdio.go", `message, _, sent := hold(ctx, m.ID, result, err)
			defer sent()`, `message := answer(m.ID, result, err)`, "./internal/serve/front", "TestAnswersAreHeld"},
	{"P233", "internal/serve/daemon/ui.go", `_, _ = io.Copy(w, io.LimitReader(f, size))`, `text, _ := io.ReadAll(io.LimitReader(f, size))
		_, _ = w.Write(text)`, "./internal/serve/daemon", "TestPagesAreStreamed"},
	{"P233", "internal/serve/front/exposed.go", `if len(uri) > maxURI {`, `if false {`, "./internal/serve/front", "TestLongURIs"},
	{"P234", "internal/exec/toolserver/process.go", `len(line) > left {`, `len(line) > left+1<<40 {`, "./internal/exec/toolserver", "TestLogLimit"},
	{"P234", "internal/exec/toolserver/server.go", `	s.output.write(line, s.options.clock.Now()`, `	new(logLimit).write(line, s.options.clock.Now()`, "./internal/exec/toolserver", "TestRestartDoesNotRenewLogLimit"},
	{"P240", "internal/supply/pack/ref.go", `digestOf([]byte(strings.Join(words, "\x00")))`, `diag.Quote(strings.Join(words, " "))`, "./internal/supply/pack", "TestProgramOf"},
	{"P241", "internal/supply/pack/project.go", `return err == nil && string(start) == "#!"`, `return false`, "./internal/cli", "TestScripts/lock-outside"},
	{"P241", "internal/supply/pack/project.go", `p.outside = append(p.outside, packagesAbove(real)...)`, `_ = packagesAbove`, "./internal/cli", "TestScripts/lock-outside"},
	{"P241", "internal/supply/pack/project.go", `p.outside = append(p.outside, list[i].path)`, ``, "./internal/cli", "TestScripts/lock-outside"},
	{"P241", "internal/supply/pack/project.go", `header = []byte(sum)`, `_ = sum`, "./internal/cli", "TestScripts/lock-outside"},
	{"P242", "internal/gateway/guard/deny/work.go", `*in.work < 0 {`, `false {`, "./internal/gateway/guard/deny", "TestFindIsBounded"},
	{"P242", "internal/gateway/guard/deny/work.go", `in.err = in.ctx.Err()`, `_ = in.ctx`, "./internal/gateway/guard/deny", "TestFindIsBounded"},
	{"P242", "internal/gateway/guard/input.go", `len(s.edits) > maxEdits {`, `false {`, "./internal/gateway/guard", "TestInputIsBounded"},
	{"P174", "internal/cli/store.go", `if _, err := os.Stat(h.Begun()); err == nil {`, `if false {`, "./internal/cli", "TestAuthorityOfOthers"},
	{"P235", "internal/serve/daemon/ui.go", `return dest == "document" || ext == ".html" && dest != "" && dest != "iframe"`, `return false`, "./internal/serve/daemon", "TestPagesOnlyInTheirFrame"},
	{"P243", "internal/exec/action/request.go", `a.body(h.Body, h.ContentType())`, `a.body(h.Body, req.Header.Get("Content-Type"))`, "./internal/exec/action", "TestValuesKeepTheBody"},
	{"P243", "internal/exec/action/request.go", `strings.Count(filled, boundary) != strings.Count(template, boundary) {`, `strings.Contains(filled, boundary+filled) {`, "./internal/exec/action", "TestValuesKeepTheBody"},
	{"P243", "internal/manifest/findagent/actions.go", `if len(found) > 0 && folded == contentType {`, `if false {`, "./internal/manifest/findagent", "TestHeadersAndBodies"},
	{"P228", "internal/exec/toolserver/watch.go", `if !s.stillWatched(ctx, uri, w) {`, `if false {`, "./internal/exec/toolserver", "TestRefusedWatchIsNotRenewed"},
	{"P228", "internal/exec/toolserver/watch.go", `if ctx.Err() != nil || !wanted(ctx) {`, `if ctx.Err() != nil {`, "./internal/exec/toolserver", "TestRefusedWatchOfOneClient"},
	{"P228", "internal/gateway/forward.go", `stopped = g.permit(ctx, &repeated, agent.OnServer{Alias: f.Server})`, `_ = repeated`, "./internal/gateway", "TestRepeatedRequestPassesTheGate"},
	{"P275", "internal/cli/installconsent.go", `if len(in.doc.Watch) == 0 || in.accepted() {`, `if true {`, "./internal/cli", "TestScripts/install-proves"},
	{"P295", "internal/exec/lock/tools.go", `if p.OK && !sameDefinition(`, `if false && !sameDefinition(`, "./internal/cli", "TestScripts/lock-turns"},
	{"P295", "internal/cli/lock.go", `range s.Warnings {`, `range s.Warnings[:0] {`, "./internal/cli", "TestScripts/lock-turns"},
	{"P294", "internal/serve/console/pages/approvals.html", `{{if not .Cut}}<button`, `{{if true}}<button`, "./internal/serve/console", "TestUnseenArgumentsAreNotApproved"},
	{"P293", "internal/supply/importer/servers.go", `n > maxParts {`, `n < 0 {`, "./internal/supply/importer", "TestWorkIsBounded"},
	{"P293", "internal/supply/importer/servers.go", `if len(servers) > maxServers {`, `if false {`, "./internal/supply/importer", "TestWorkIsBounded"},
	{"P292", "internal/serve/front/front.go", `if r.Code == call.CredentialMissing {`, `if true {`, "./internal/serve/front", "TestServersFailToStart"},
	{"P292", "internal/serve/front/front.go", `reasonFor(r) + "\n\n" + text`, `explain(r) + "\n\n" + text`, "./internal/serve/host", "TestOneServerDown"},
	{"P291", "internal/exec/action/request.go", `if *a.spare -= n; *a.spare < 0 {`, `if *a.spare -= n; false {`, "./internal/exec/action", "TestRequestIsBounded"},
	{"P291", "internal/exec/action/parts.go", `if err := a.take(len(name)); err != nil {`, `if err := a.take(0); err != nil {`, "./internal/exec/action", "TestRequestIsBounded"},
	{"P290", "internal/cli/lock.go", `a = withoutEffects(a)`, `_ = withoutEffects(a)`, "./internal/cli", "TestScripts/import-stranger"},
	{"P290", "internal/cli/lock.go", `o.Lookup = t.storedOnly(m)`, `_ = t.storedOnly(m)`, "./internal/cli", "TestScripts/import-stranger"},
	{"P290", "internal/cli/import.go", `trusted := f.asked || t.isClients(src)`, `trusted := true || t.isClients(src)`, "./internal/cli", "TestScripts/import-stranger"},
	{"P276", "internal/cli/install.go", `in.askCredentials, in.prove, in.copyAgent,`, `in.askCredentials, in.copyAgent,`, "./internal/cli", "TestScripts/install-proves"},
	{"P277", "internal/cli/uninstall.go", `		t.revokeGrants(ctx, name)
`, ``, "./internal/cli", "TestScripts/grant-scope"},
	{"P228", "internal/serve/front/exposed.go", `f.OnDrop = dropped`, `f.OnDrop = func() {}`, "./internal/serve/front", "TestDroppedSubscription"},
	{"P298", "internal/exec/lock/standin.go", `return r.Kind == agent.CanConnect })`, `return false })`, "./internal/cli", "TestScripts/import-start"},
	{"P265", "internal/serve/host/health.go", `case p.Required:`, `case p.Required && false:`, "./internal/serve/host", "TestOneServerDown"},
	{"P300", "internal/exec/signin/flow.go", `if !sameState(answer.Get("state"), v.State) {`, `if false {`, "./internal/exec/signin", "TestReadAnswer"},
	{"P300", "internal/exec/signin/flow.go", `case sent && !slices.Equal(iss, []string{v.Issuer}):`, `case len(iss) > 2:`, "./internal/exec/signin", "TestHostileAnswers"},
	{"P300", "internal/exec/signin/flow.go", `case !sent && v.SendsIssuer:`, `case false:`, "./internal/exec/signin", "TestHostileAnswers"},
	{"P301", "internal/exec/signin/flow.go", `		oauth2.S256ChallengeOption(v.Verifier), oauth2.SetAuthURLParam("resource", v.Resource),`, `		oauth2.SetAuthURLParam("resource", v.Resource),`, "./internal/exec/signin", "TestSignIn"},
	{"P301", "internal/exec/signin/discover.go", `if !slices.Contains(m.CodeChallengeMethodsSupported, "S256") {`, `if false {`, "./internal/exec/signin", "TestHostileMetadata"},
	{"P302", "internal/exec/signin/discover.go", `case !covers(meta.Resource, endpoint) || !mayName(place, meta.Resource, e):`, `case false:`, "./internal/exec/signin", "TestHostileMetadata"},
	{"P302", "internal/exec/signin/signin.go", `return path == parent || strings.HasPrefix(path, parent+"/")`, `return strings.HasPrefix(path, parent)`, "./internal/exec/signin", "TestCovers"},
	{"P303", "internal/exec/signin/signin.go", `s.ID() == t.ID && `, ``, "./internal/exec/signin", "TestBinding"},
	{"P303", "internal/exec/signin/signin.go", `covers(g.Resource, t.Endpoint)`, `true`, "./internal/exec/signin", "TestBinding"},
	{"P303", "internal/exec/signin/signin.go", `g.Principal == t.Principal && `, ``, "./internal/exec/signin", "TestMovedSignIn"},
	{"P304", "internal/exec/signin/discover.go", `	resp, err := c.client.Do(req)`, `	resp, err := http.DefaultTransport.RoundTrip(req)`, "./internal/exec/signin", "TestPrivateAddresses"},
	{"P304", "internal/exec/signin/discover.go", `if err := k.secure(address); err != nil {`, `if err := error(nil); err != nil {`, "./internal/exec/signin", "TestHostileMetadata"},
	{"P305", "internal/exec/signin/discover.go", `resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)`, `_ = maxAnswer`, "./internal/exec/signin", "TestEndlessMetadata"},
	{"P305", "internal/exec/signin/discover.go", `Timeout: answerTime,`, ``, "./internal/exec/signin", "TestEndlessMetadata"},
	{"P305", "internal/exec/signin/discover.go", `CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },`, ``, "./internal/exec/signin", "TestRedirectedMetadata"},
	{"P306", "internal/exec/signin/loopback.go", `case r.Host != p.host:`, `case false:`, "./internal/exec/signin", "TestLoopback"},
	{"P306", "internal/exec/signin/loopback.go", `case !sameState(query.Get("state"), p.state):`, `case false:`, "./internal/exec/signin", "TestLoopback"},
	{"P307", "internal/exec/signin/keeper.go", `g.Access, g.Refresh = "", ""`, `_ = refused`, "./internal/exec/signin", "TestStolenRefreshToken"},
	{"P308", "internal/exec/signin/keeper.go", `if err != nil || g.Access != spent || g.Access == "" {`, `if err != nil || g.Access == "" {`, "./internal/exec/signin", "TestRenew"},
	{"P309", "internal/exec/signin/session.go", `case s.signIns == maxSignIns:`, `case false:`, "./internal/exec/signin", "TestStepUpLimit"},
	{"P309", "internal/exec/signin/session.go", `if len(missing) == 0 {`, `if false {`, "./internal/exec/signin", "TestSameScopeAgain"},
	{"P310", "internal/store/identity/oidc.go", `if reserved(name) || o.config.isOthers(name) {`, `if reserved(name) {`, "./internal/store/identity", "TestProvidersAreApart"},
	{"P310", "internal/store/identity/providers.go", `} else if !c.isOthers(g) {`, `} else {`, "./internal/store/identity", "TestProvidersAreApart"},
	{"P310", "internal/store/identity/providers.go", `	return c.name + ":" + name`, `	return name`, "./internal/store/identity", "TestProvidersAreApart"},
	{"P311", "internal/gateway/policy/caller.go", `	return slices.DeleteFunc(slices.Clone(r.groups), func(group string) bool { return !slices.Contains(a.Groups, group) })`, `	return r.groups`, "./internal/gateway/policy", "TestCaller"},
	{"P311", "internal/gateway/policy/caller.go", `	if a == nil || r == nil || len(r.groups) == 0 {
		return nil`, `	if a == nil || r == nil || len(r.groups) == 0 {
		return r.groups`, "./internal/gateway/policy", "TestGroupsComeFromTheCredentialAlone"},
	{"P312", "internal/store/identity/providers.go", `if elsewhere[path[0]] != nil ||`, `if false ||`, "./internal/store/identity", "TestClaimsAreBounded"},
	{"P312", "internal/store/identity/providers.go", `	if len(list) > limit {`, `	if false {`, "./internal/store/identity", "TestClaimsAreBounded"},
	{"P313", "internal/store/identity/apikey.go", `		parts = append(parts, k.Groups)`, `		_ = k.Groups`, "./internal/store/identity", "TestKeyGroups"},
	{"P314", "internal/gateway/policy/live.go", `if c.AttributesLost && `, `if false && `, "./internal/gateway/policy", "TestLostAttributes"},
	{"P315", "internal/serve/daemon/compose.go", `Kind: kind, Name`, `Kind: kind[:0], Name`, "./internal/serve/daemon", "TestSignInRequiredInChains"},
	{"P316", "internal/gateway/policy/live.go", `		s.views.Clear()
`, ``, "./internal/gateway/policy", "TestViewsAreBounded"},
	{"P322", "internal/exec/signin/session.go", `_ = k.revoke(ctx, old)`, `_ = old`, "./internal/exec/signin", "TestReplacedTokensAreRevoked"},
	{"P323", "internal/exec/signin/flow.go", `Scopes: v.Scopes, Key: key,`, `Scopes: v.Scopes,`, "./internal/exec/signin", "TestDPoP"},
	{"P323", "internal/exec/signin/dpop.go", `	if token != "" {`, `	if false {`, "./internal/exec/signin", "TestDPoP"},
	{"P323", "internal/exec/signin/keeper.go", `k.withClient(ctx, g.Key)`, `k.withClient(ctx, nil)`, "./internal/exec/signin", "TestDPoP"},
	{"P323", "internal/exec/signin/flow.go", `case !bound && g.Key != nil && g.Access != "":`, `case false:`, "./internal/exec/signin", "TestDPoPDowngrade"},
	{"P324", "internal/exec/signin/session.go", `return try < maxNonceTries, nil`, `return true, nil`, "./internal/exec/signin", "TestEndlessNonces"},
	{"P299", "internal/exec/signin/discover.go", `	case wanted == "":`, `	default:`, "./internal/exec/signin", "TestMachineGrantsRefused"},
	{"P317", "internal/serve/front/tools.go", ` || hidden != nil && hidden[i] {`, ` || hidden != nil && false {`, "./internal/serve/front", "TestEachCallerHasItsOwnList"},
	{"P317", "internal/gateway/policy/listing.go", `key.caller = c.Principal`, `key.caller = ""`, "./internal/gateway/policy", "TestHiddenIsEachCallersOwn"},
	{"P317", "internal/gateway/policy/listing.go", `, groups: groupsKey(s.rules.named(c.Attributes))}`, `}`, "./internal/serve/front", "TestEachCallerHasItsOwnList"},
	{"P317", "internal/gateway/policy/listing.go", `found.hidden[i] = s.foresee(q) == Never`, `found.hidden[i] = s.foresee(q) == Never && false`, "./internal/gateway/policy", "TestHidden"},
	{"P318", "internal/gateway/policy/listing.go", `l.all[key] == nil && len(l.all) >= maxListings {`, `false {`, "./internal/gateway/policy", "TestListingsAreBounded"},
	{"P319", "internal/serve/front/publish.go", `		if (was != nil && was[i]) != (hidden != nil && hidden[i]) {`, `		if (was != nil || hidden != nil) && i >= 0 {`, "./internal/serve/front", "TestListChangesWithPolicy"},
}
