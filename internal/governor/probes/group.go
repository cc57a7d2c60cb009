package probes

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// groupUse is what a control group has, of Linux (cgroups(7)).
type groupUse struct {
	used  uint64 // bytes that the kernel can't simply take back
	limit uint64 // bytes; 0: there is none
}

// groupFiles are where the kernel tells about a process's control groups.
type groupFiles struct {
	proc string // /proc/self
	root string // where control groups are mounted
}

// boundless is from where on a number means that there is no limit: version 1
// writes the largest multiple of a page.
const boundless = 1 << 60

// read finds the group, or the one above it, of whose limit the largest part is
// used. Without control groups (another system, or none mounted) there is none.
func (f groupFiles) read() (groupUse, error) {
	paths, version, err := f.groups()
	if err != nil {
		return groupUse{}, fmt.Errorf("which control group the process is in: %w", err)
	}
	var worst groupUse
	for _, dir := range paths {
		u, err := readGroup(dir, version)
		if err != nil {
			return groupUse{}, fmt.Errorf("the memory of the control group: %w", err)
		}
		if u.limit > 0 && (worst.limit == 0 || float64(u.used)/float64(u.limit) > float64(worst.used)/float64(worst.limit)) {
			worst = u
		}
	}
	return worst, nil
}

// groups lists the directories of the process's group and of those above it, as
// far as they are to be seen from here: in a container the root is its own.
func (f groupFiles) groups() (dirs []string, version int, err error) {
	file, err := os.Open(filepath.Join(f.proc, "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	path, root := "", ""
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3) // hierarchy, controllers, path
		if len(parts) != 3 {
			return nil, 0, fmt.Errorf("%s says %q", file.Name(), lines.Text())
		}
		switch {
		case parts[1] == "memory":
			path, root, version = parts[2], filepath.Join(f.root, "memory"), 1
		case parts[0] == "0" && parts[1] == "" && version == 0:
			path, root, version = parts[2], f.root, 2
		}
	}
	if err := lines.Err(); err != nil || version == 0 {
		return nil, 0, err
	}
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		dirs = append(dirs, filepath.Join(root, path))
		if path == "/" {
			return dirs, version, nil
		}
	}
}

// names of the files of each version, and of the line in memory.stat that says
// what of the use is files that weren't touched lately: those the kernel takes
// back before it kills.
func names(version int) (limit, used, idle string) {
	if version == 1 {
		return "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	}
	return "memory.max", "memory.current", "inactive_file"
}

func readGroup(dir string, version int) (groupUse, error) {
	limitFile, usedFile, idleLine := names(version)
	text, err := os.ReadFile(filepath.Join(dir, limitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return groupUse{}, nil // the root has no limit, and a path may be one of another namespace
	}
	if err != nil {
		return groupUse{}, err
	}
	u := groupUse{}
	if said := strings.TrimSpace(string(text)); said != "max" {
		if u.limit, err = strconv.ParseUint(said, 10, 64); err != nil {
			return groupUse{}, fmt.Errorf("%s says %q", limitFile, said)
		}
	}
	if u.limit == 0 && strings.TrimSpace(string(text)) != "max" {
		return groupUse{}, fmt.Errorf("%s says 0, with which nothing could run", limitFile)
	}
	if u.limit == 0 || u.limit >= boundless {
		return groupUse{}, nil
	}
	if u.used, err = readNumber(filepath.Join(dir, usedFile)); err != nil {
		return groupUse{}, err
	}
	idle, err := readStat(filepath.Join(dir, "memory.stat"), idleLine)
	if err != nil {
		return groupUse{}, err
	}
	if u.used == 0 {
		return groupUse{}, fmt.Errorf("%s says 0, and this process is in it", usedFile)
	}
	u.used -= min(idle, u.used) // they are counted one after the other
	return u, nil
}

func readNumber(name string) (uint64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s says %q", name, text)
	}
	return n, nil
}

func readStat(name, line string) (uint64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(l), " "); ok && key == line {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", name, line)
}
