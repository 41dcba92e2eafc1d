package gpars

import (
	_ "embed"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

//go:embed rules.txt
var rulesText string

// Rules lists the rules of this dialect. The file rules.txt explains them.
var Rules = diag.ParseRules(rulesText)

var (
	ruleUnknown      = Rules.Get("GP001")
	ruleVersion      = Rules.Get("GP002")
	ruleUntidy       = Rules.Get("GP003")
	ruleExtensionKey = Rules.Get("GP004")
	ruleServerID     = Rules.Get("GP010")
	ruleNoHost       = Rules.Get("GP011")
	ruleHostCase     = Rules.Get("GP012")
	ruleDuplicate    = Rules.Get("GP013")
	ruleBothLists    = Rules.Get("GP014")
	ruleConstraint   = Rules.Get("GP020")
	ruleNotNPM       = Rules.Get("GP021")
	ruleNoScopes     = Rules.Get("GP030")
	ruleStrayReach   = Rules.Get("GP040")
)
