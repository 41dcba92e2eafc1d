package matrix

import (
	_ "embed"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

//go:embed rules.txt
var rulesText string

// Rules lists the rules of this dialect. The file rules.txt explains them.
var Rules = diag.ParseRules(rulesText)

var (
	ruleSchemaVersion     = Rules.Get("MX001")
	ruleAgent             = Rules.Get("MX002")
	ruleAllowsNothing     = Rules.Get("MX003")
	ruleSideEffect        = Rules.Get("MX004")
	ruleChainClass        = Rules.Get("MX005")
	ruleAlias             = Rules.Get("MX010")
	ruleDuplicateAlias    = Rules.Get("MX011")
	ruleSSE               = Rules.Get("MX012")
	ruleTransport         = Rules.Get("MX013")
	ruleCommand           = Rules.Get("MX014")
	ruleEndpoint          = Rules.Get("MX015")
	ruleEndpointURL       = Rules.Get("MX016")
	rulePlainHTTP         = Rules.Get("MX017")
	ruleURLAlias          = Rules.Get("MX018")
	ruleOtherTransport    = Rules.Get("MX019")
	ruleVersion           = Rules.Get("MX020")
	ruleDigest            = Rules.Get("MX021")
	ruleZeroDigest        = Rules.Get("MX022")
	ruleArgsVersion       = Rules.Get("MX023")
	ruleCommandLine       = Rules.Get("MX024")
	ruleRemoteDigest      = Rules.Get("MX025")
	ruleNoTools           = Rules.Get("MX030")
	ruleToolName          = Rules.Get("MX031")
	ruleDuplicateTool     = Rules.Get("MX032")
	ruleEnvForm           = Rules.Get("MX040")
	ruleDuplicateEnv      = Rules.Get("MX041")
	ruleLiteralCredential = Rules.Get("MX042")
	ruleEnvRef            = Rules.Get("MX043")
	ruleRefPlace          = Rules.Get("MX044")
	ruleLiteralSetting    = Rules.Get("MX045")
	ruleHeaderName        = Rules.Get("MX046")
	ruleHeaderValue       = Rules.Get("MX047")
	ruleNamespace         = Rules.Get("MX050")
	ruleDuplicateNative   = Rules.Get("MX051")
	ruleNoServers         = Rules.Get("MX060")
)
