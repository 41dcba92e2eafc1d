package adversary

// These removals concern clients of "ambit run" that join a daemon.
func init() {
	removals = append(removals, []removal{
		{"P500", "internal/serve/daemon/join.go", "	if !sameUser(conn) {\n		return\n", "	if false {\n		return\n", "./internal/serve/daemon", "TestJoinChecksUser"},
		{"P500", "internal/serve/daemon/join.go", "	if !sameUser(conn) {\n		conn.Close()\n", "	if false {\n		conn.Close()\n", "./internal/serve/daemon", "TestJoinChecksUser"},
		{"P501", "internal/serve/daemon/join.go", `if own[term] != h.Terms[term] {`, `if false {`, "./internal/serve/daemon", "TestJoinRefuses"},
		{"P501", "internal/serve/daemon/join.go", `if e.seal != h.Seal+allowed[h.Agent] {`, `if e.seal == allowed[h.Agent] {`, "./internal/serve/daemon", "TestJoinRefuses"},
		{"P501", "internal/serve/daemon/join.go", `return h.Variables[name] == own`, `return h.Variables[name] == own || own != ""`, "./internal/serve/daemon", "TestJoinKnowsVariables"},
		{"P501", "internal/serve/host/shared.go", `if !g.SameVariable(name) {`, `if false {`, "./internal/cli", "TestRunStaysAlone"},
		{"P501", "internal/cli/join.go", `!f.remote && len(f.unconfined) == 0 &&`, `!f.remote &&`, "./internal/cli", "TestRunStaysAlone"},
		{"P502", "internal/exec/toolserver/shared.go", `case !s.remote() && declaresAny(capabilities):`, `case false:`, "./internal/exec/toolserver", "TestShareable"},
		{"P502", "internal/exec/toolserver/shared.go", `if s.secretsChanged() {`, `if false {`, "./internal/exec/toolserver", "TestShareableOnlyAsItWouldStart"},
		{"P502", "internal/exec/toolserver/shared.go", `if slices.ContainsFunc(texts, namesRelativePath) {`, `if false {`, "./internal/exec/toolserver", "TestWorkingFolderOfSharedServer"},
		{"P501", "internal/serve/host/shared.go", `names = append(names, serverVariables...)`, `_ = serverVariables`, "./internal/cli", "TestRunStaysAlone"},
		{"P504", "internal/cli/bridge.go", `if !changesNothing(m.Method) {`, `if changesNothing(m.Method) {`, "./internal/cli", "TestRequestsOfALostSession"},
		{"P503", "internal/serve/daemon/join.go", `v.running.ServeJoined(session, identity.LocalName(), in, conn)`, `v.running.ServeJoined(session, "admin-"+identity.LocalName(), in, conn)`, "./internal/serve/daemon", "TestJoin"},
		{"P504", "internal/cli/bridge.go", `			b.lost()`, ``, "./internal/cli", "TestDaemonIsKilledInMidCall"},
		{"P505", "internal/serve/front/stdio.go", `	p.questionPrefix += p.key + "-"`, ``, "./internal/serve/front", "TestJoinedClients"},
	}...)
}
