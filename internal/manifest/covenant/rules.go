package covenant

import (
	_ "embed"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

//go:embed rules.txt
var rulesText string

// Rules lists the rules of this dialect. The file rules.txt explains them.
var Rules = diag.ParseRules(rulesText)

var (
	ruleID               = Rules.Get("CV001")
	rulePlainID          = Rules.Get("CV002")
	ruleVersion          = Rules.Get("CV003")
	ruleEntryCharacters  = Rules.Get("CV004")
	ruleEntryFolder      = Rules.Get("CV005")
	ruleEntryOutside     = Rules.Get("CV006")
	ruleEntryBackslash   = Rules.Get("CV007")
	ruleNamespace        = Rules.Get("CV010")
	ruleAction           = Rules.Get("CV011")
	ruleActionCharacters = Rules.Get("CV012")
	ruleBothLists        = Rules.Get("CV013")
	ruleNoBudget         = Rules.Get("CV020")
	ruleSection          = Rules.Get("CV030")
	ruleNoSandbox        = Rules.Get("CV040")
	ruleHostFiles        = Rules.Get("CV041")
)
