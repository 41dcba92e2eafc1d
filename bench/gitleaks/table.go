package main

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/pelletier/go-toml/v2"
	"github.com/zricethezav/gitleaks/v8/config"
)

// The types ending in "In" describe the part of gitleaks' configuration that applies to text. The other types
// describe the table that this command writes. Rules and allowlists for paths and commits are left out, because the
// result of a call has neither.
type (
	allowIn struct {
		Condition   string
		Paths       []string
		Commits     []string
		RegexTarget string
		Regexes     []string
		StopWords   []string
	}
	configIn struct {
		Allowlist *allowIn
		Rules     []struct {
			ID          string
			Regex       string
			Path        string
			SecretGroup int
			Entropy     float64
			Keywords    []string
			Allowlists  []allowIn
		}
	}
	allowOut struct {
		All       bool     `json:"all,omitzero"`
		Target    string   `json:"target,omitzero"`
		Regexes   []string `json:"regexes,omitempty"`
		StopWords []string `json:"stop_words,omitempty"`
	}
	ruleOut struct {
		ID      string     `json:"id"`
		Regex   string     `json:"regex"`
		Group   int        `json:"group,omitzero"`
		Entropy float64    `json:"entropy,omitzero"`
		Allow   []allowOut `json:"allow,omitempty"`
	}
	configOut struct {
		From  string     `json:"from"`
		Allow []allowOut `json:"allow"`
		Rules []ruleOut  `json:"rules"`
	}
)

// rules returns gitleaks' rules for text as JSON. The table is stored compressed, because it contains texts that look
// like real keys.
func rules() ([]byte, error) {
	var in configIn
	if err := toml.Unmarshal([]byte(config.DefaultConfig), &in); err != nil {
		return nil, err
	}
	out := configOut{From: "github.com/zricethezav/gitleaks/v8, config/gitleaks.toml, MIT licence, Copyright (c) 2019 Zachary Rice"}
	if in.Allowlist != nil {
		out.Allow = allow([]allowIn{*in.Allowlist})
	}
	for _, r := range in.Rules {
		if r.Regex == "" {
			continue
		}
		out.Rules = append(out.Rules, ruleOut{r.ID, r.Regex, r.SecretGroup, r.Entropy, allow(r.Allowlists)})
	}
	return json.Marshal(out)
}

func allow(in []allowIn) []allowOut {
	var out []allowOut
	for _, a := range in {
		all := strings.EqualFold(a.Condition, "and") || a.Condition == "&&"
		if all && len(a.Paths)+len(a.Commits) > 0 || len(a.Regexes)+len(a.StopWords) == 0 {
			continue // the allowlist applies only to paths or commits
		}
		out = append(out, allowOut{all, a.RegexTarget, a.Regexes, a.StopWords})
	}
	return out
}
