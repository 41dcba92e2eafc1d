package cli

import "time"

// moment is a time as a person reads it: that of this machine's zone, which it
// names, because the console and other machines write UTC.
func moment(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05 MST") }
