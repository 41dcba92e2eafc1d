package home

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxDays is a hundred years. A time.Duration ends at about three hundred.
const maxDays = 36525

var errDuration = errors.New("it is not a duration such as 90m, 12h or 7d")

// Duration parses a duration such as 90m, 12h or 7d.
func Duration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return 0, errDuration
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDays*24*time.Hour {
		return 0, errDuration
	}
	return d, nil
}
