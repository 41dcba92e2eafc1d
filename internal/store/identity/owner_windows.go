package identity

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

func owned(path string, _ fs.FileInfo) (bool, error) {
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false, err
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return false, err
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return false, err
	}
	if owner.Equals(user.User.Sid) {
		return true, nil
	}
	// Windows can make the Administrators group the owner of a file that an administrator creates.
	admins := owner.IsWellKnown(windows.WinBuiltinAdministratorsSid)
	return admins && windows.GetCurrentProcessToken().IsElevated(), nil
}
