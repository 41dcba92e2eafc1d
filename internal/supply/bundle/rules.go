package bundle

import (
	_ "embed"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

//go:embed rules.txt
var rulesText string

// Rules lists the diagnostic rules for code bundles.
var Rules = diag.ParseRules(rulesText)

var (
	ruleUnreadable = Rules.Get("CB001")
	rulePath       = Rules.Get("CB002")
	ruleLink       = Rules.Get("CB003")
	ruleTooLarge   = Rules.Get("CB004")
	ruleTwice      = Rules.Get("CB005")
	ruleManifest   = Rules.Get("CB006")
	ruleMissing    = Rules.Get("CB007")
	ruleBuild      = Rules.Get("CB008")
	ruleOtherBuild = Rules.Get("CB009")
	ruleSecret     = Rules.Get("CB010")
	ruleHost       = Rules.Get("CB011")
	ruleNative     = Rules.Get("CB012")
	ruleVariable   = Rules.Get("CB013")
	ruleSkills     = Rules.Get("CB015")
)

// Problem is one problem in a bundle, with its location.
type Problem struct {
	Code     string        `json:"code"`
	Severity diag.Severity `json:"severity"`
	// Path is the path of the file in the bundle. It is empty if the problem concerns the whole bundle.
	Path string `json:"path"`
	// Line is the line number, starting at 1. It is 0 if the problem concerns the whole file.
	Line    int    `json:"line"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}
