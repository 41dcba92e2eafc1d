package program

import "io"

// hold has nothing to do: nobody clears out what is in use.
func hold(string) (io.Closer, error) { return io.NopCloser(nil), nil }
