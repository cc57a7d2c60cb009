package chart

import (
	"os"
	"syscall"
)

// confined makes a process see nothing but dir, as user 65532. Without root it
// takes a namespace in which it may.
func confined(dir string) *syscall.SysProcAttr {
	const user = 65532
	attr := &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: user, Gid: user, NoSetGroups: true}}
	if os.Getuid() != 0 {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}
