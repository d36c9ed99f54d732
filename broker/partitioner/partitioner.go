package partitioner

import "tidewire/internal/model"

// murmur2 is the 32-bit MurmurHash2 with the seed of Kafka's default partitioner, so
// that a key lands on the partition where Kafka's clients would put it.
func murmur2(data []byte) uint32 {
	const (
		seed = uint32(0x9747b28c)
		m    = uint32(0x5bd1e995)
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// ForKey returns murmur2(key) mod n as Kafka's clients compute it. n is at
// least 1.
func ForKey(key []byte, n int) model.PartitionID {
	return model.PartitionID(int32(murmur2(key)&0x7fffffff) % int32(n))
}
