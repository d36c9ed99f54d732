// Package recordjson is the JSON codec of records on the hot paths: the body of a
// produce request, one NDJSON line, and the records and results of answers. It
// knows the encodings and the limits of the HTTP contract, and neither HTTP nor
// topics.
//
// # Reading
//
// Request.Decode reads {"records":[…]} in place: strings are unescaped and base64
// is decoded inside the body's own buffer, JSON values are sub-slices of it, and
// nothing is allocated per record. The body therefore belongs to the Request until
// its records are no longer used; its bytes are changed. Requests come from a Pool.
//
// Order of errors: a body that is not JSON in UTF-8 is malformed-body (400) whatever
// else is wrong with it, more than MaxRecords records are request-too-large (413),
// and only then come invalid-argument and invalid-timestamp (422), with a JSON
// Pointer (RFC 6901) for up to MaxFieldErrors places.
//
// # Writing
//
// AppendRecord writes one fetched record, AppendResult the place of one stored
// record. What AppendRecord writes is accepted by the reader as it is and gives
// equal bytes again, under every combination of encodings.
//
// # Choices that the contract leaves open
//
//   - A member that occurs twice in a record, a header or the request is refused
//     (422), as RFC 8259 leaves its meaning open; inside JSON values duplicate names
//     are bytes like any others, and in the object form of headers they are two
//     headers.
//   - null for timestamp, partition, partition_key, headers or an encoding means the
//     same as leaving the member out.
//   - base64 is RFC 4648 §4: the standard alphabet, padded, without line breaks.
//   - An encoding that contradicts its value is refused: "text" or "base64" on
//     anything but a string or null.
//   - The name of a header that is not valid UTF-8, which a Kafka client may write,
//     is given in base64 and the header has one more member, "name_encoding":
//     "base64"; the reader accepts it.
//   - timestamp_type is "CreateTime" or "LogAppendTime", the words of the topic
//     config message.timestamp.type.
package recordjson
