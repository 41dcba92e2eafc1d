// Package gitleaks compares the findings of ambit's secret scan with those of gitleaks. The command in the folder bench
// compares their speed. ambit itself does not import gitleaks, which would add forty dependencies.
package gitleaks
