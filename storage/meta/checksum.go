package meta

import (
	"crypto/sha256"
	"encoding/json"
)

// checksum is the exclusive or of the SHA-256 of every row, so that a batch can take
// out the rows it replaces and put in the new ones without reading the others. It finds
// what SQLite's own check cannot: pages of two points in time in one file, as an old copy
// of the database beside a newer write-ahead log gives.
type checksum [sha256.Size]byte

// toggle adds a row that was not in, or takes out one that was.
func (c *checksum) toggle(table string, row any) {
	body, err := json.Marshal(row)
	if err != nil {
		panic("meta: a row of plain values does not encode: " + err.Error())
	}
	sum := sha256.Sum256(append([]byte(table+"\x00"), body...))
	for i := range c {
		c[i] ^= sum[i]
	}
}
