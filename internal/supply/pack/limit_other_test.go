//go:build !unix

package pack

var limitFiles func() error
