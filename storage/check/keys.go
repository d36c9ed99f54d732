package check

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path"

	"tidewire/internal/model"
)

const (
	keysMagic     = "TWIDEMP\x01"
	keysHead      = len(keysMagic) + 4 + 8 + 4
	keysEntrySize = 64
)

// checkKeys reads the file of Idempotency-Keys, if there is one. Which keys it must have cannot
// be told: they are forgotten after a time that the topic says.
func (p *partition) checkKeys() error {
	name := path.Join(p.dir, keysFile)
	b, have, err := p.c.read(name)
	if err != nil || !have {
		return err
	}
	covered, err := decodeKeys(b)
	switch {
	case err != nil:
		p.c.report(Damage, name, nowhere, "the file of idempotency keys is damaged: %v", err)
	case p.clean && !p.broken && covered > p.end:
		p.c.report(Damage, name, at{-1, covered}, "the file of idempotency keys reaches beyond the log's end %d", p.end)
	}
	return nil
}

// decodeKeys gives the offset below which the file has all keys.
func decodeKeys(b []byte) (model.Offset, error) {
	be := binary.BigEndian
	switch {
	case len(b) < keysHead:
		return 0, errors.New("the file is cut short")
	case string(b[:len(keysMagic)]) != keysMagic:
		return 0, errors.New("it is not of version 1")
	case be.Uint32(b[len(keysMagic):]) != crc32.Checksum(b[len(keysMagic)+4:], castagnoli):
		return 0, errChecksum
	}
	covered := model.Offset(be.Uint64(b[len(keysMagic)+4:]))
	n := int64(be.Uint32(b[keysHead-4:]))
	if b = b[keysHead:]; covered < 0 || n*keysEntrySize != int64(len(b)) {
		return 0, errors.New("its head does not fit its entries")
	}
	prev := model.Offset(0)
	for ; len(b) > 0; b = b[keysEntrySize:] {
		base, count, partitions := model.Offset(be.Uint64(b[32:])), int32(be.Uint32(b[40:])), int32(be.Uint32(b[44:]))
		end := base + model.Offset(count)
		if base < prev || count < 1 || partitions < 1 || end > covered {
			return 0, errors.New("an entry cannot be")
		}
		prev = end
	}
	return covered, nil
}
