//go:build !unix

package pack

import (
	"os"
	"os/exec"
)

const openFile = os.O_RDONLY

func wholeGroup(*exec.Cmd) {}
