package cli

import (
	"errors"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// checkSettings reads all of config.toml before any setting is used. Problems are then
// reported as problems of the file, also for settings that only the daemon reads.
func checkSettings(h home.Home) error {
	file := h.Config()
	failed := func(err error) error { return no("fix "+diag.ShellWord(file), "%w", err) }
	if err := home.CheckConfig(file); err != nil {
		return failed(err)
	}
	_, oidc := identity.ReadOIDC(file)
	_, quotas := limit.ReadQuotas(h)
	_, ttl := memory.TTL(h)
	_, registries := registry.ReadConfig(h)
	_, age := readRetention(h)
	_, skills := skill.ReadStore(file)
	var problems []string
	for _, err := range []error{oidc, quotas, ttl, registries, age, skills} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return failed(errors.New(strings.Join(problems, "; ")))
	}
	return nil
}
