package cli

import (
	"strings"

	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/skill"
)

// checkSettings reads all of config.toml before anything of it is used. So what is
// wrong in it is told as such, and not as the trouble of whoever reads it first; and
// a setting that only the daemon reads is not taken for one that works.
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
	var problems []error
	for _, err := range []error{oidc, quotas, ttl, registries, age, skills} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return failed(together(problems))
	}
	return nil
}

// together are several errors on one line.
type together []error

func (e together) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
