package recordjson

import "tidewire/storage/record"

// AppendRecordLine appends the NDJSON line {"record":…} of one fetched record. It has no
// line break but the one at its end.
func AppendRecordLine(dst []byte, meta *Meta, rec *record.Record, enc Encodings) []byte {
	dst = append(dst, `{"record":`...)
	dst = AppendRecord(dst, meta, rec, enc)
	return append(dst, '}', '\n')
}
