package deny

import (
	"bytes"
	"slices"
)

const markerStart = "[injection:"

// Marker returns the text that replaces a redacted passage. A marker contains the name of the pattern, and patterns can
// match words in this name. [List.Find] and [List.FindAll] therefore ignore a match that begins inside a marker.
func Marker(pattern string) string { return markerStart + pattern + "]" }

// maxName is longer than the name of every default pattern.
const maxName = 32

// outsideMarkers reports whether a match begins outside a marker. If the match ends inside a marker, outsideMarkers
// extends the match to the end of the marker, so that a redaction leaves no part of the marker behind.
func (h *Hit) outsideMarkers(text []byte) bool {
	if _, in := markerAround(text, h.Start); in {
		return false
	}
	if end, in := markerAround(text, h.End); in {
		h.End = end
	}
	return true
}

// markerAround returns the end of the marker that contains the given offset.
func markerAround(text []byte, offset int) (end int, found bool) {
	from := max(0, offset-len(markerStart)-maxName)
	at := bytes.LastIndex(text[from:offset], []byte(markerStart))
	if at < 0 {
		return 0, false
	}
	name := text[from+at+len(markerStart):]
	size := bytes.IndexByte(name[:min(len(name), maxName)], ']')
	end = from + at + len(markerStart) + size + 1
	if size < 0 || offset >= end {
		return 0, false
	}
	return end, slices.ContainsFunc(Defaults(), func(p Pattern) bool { return p.Name == string(name[:size]) })
}
