package files

import (
	"golang.org/x/sys/unix"
)

// The default cap: half of the descriptors that the process may have, which leaves the
// other half to connections, and no more than 3,072, with which a node of 10,000 partitions
// and a thousand connections stays below 4,096.
const (
	DefaultLimit = 3072
	share        = 2
)

// LimitFor is the cap for a limit of descriptors (RLIMIT_NOFILE).
func LimitFor(descriptors uint64) int {
	return max(int(min(descriptors/share, DefaultLimit)), MinLimit)
}

// DescriptorLimit is how many descriptors this process may have.
func DescriptorLimit() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	return uint64(r.Cur), nil //nolint:unconvert // signed on some systems
}
