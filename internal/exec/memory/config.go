package memory

import (
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

// TTL is how long records are kept, as the settings of a home say: ttl in the
// table [memory] of config.toml, such as "30d" or "12h". Without it, that is
// [DefaultTTL].
func TTL(h home.Home) (time.Duration, error) {
	var table struct {
		TTL string `toml:"ttl"`
	}
	file := h.Config()
	found, err := home.ReadTable(file, "memory", &table)
	if err != nil || !found || table.TTL == "" {
		return DefaultTTL, err
	}
	ttl, err := home.Duration(table.TTL)
	if err != nil || ttl == 0 {
		return 0, fmt.Errorf(`%s: [memory]: ttl is a time such as "30d" or "12h"`, file)
	}
	return ttl, nil
}
