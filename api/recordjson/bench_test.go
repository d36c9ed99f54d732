package recordjson

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tidewire/storage/record"
)

func benchmarkDecode(b *testing.B, format string) {
	const n = 100
	body := []byte(benchBody(n, format))
	work := make([]byte, len(body))
	var r Request
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		copy(work, body) // decoding changes the body
		if err := r.Decode(work); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkDecode(b *testing.B) {
	text := strings.Repeat("abcdefghij", 10)
	object := `{"date":"2001/01/13 14:56","delay":32,"distance":418,"origin":"SAN","destination":"SJC","n":1234567}`
	b.Run("text-100", func(b *testing.B) { benchmarkDecode(b, `{"value":"`+text+`%.0[1]d"}`) })
	b.Run("key-text-100", func(b *testing.B) { benchmarkDecode(b, `{"key":"key-%[1]d","value":"`+text+`"}`) })
	b.Run("key-json-100", func(b *testing.B) { benchmarkDecode(b, `{"key":"key-%[1]d","value":`+object+`}`) })
	b.Run("escapes-100", func(b *testing.B) {
		benchmarkDecode(b, `{"value":"`+strings.Repeat(`abcdefgh\n`, 11)+`%.0[1]d"}`)
	})
	b.Run("base64-100", func(b *testing.B) {
		benchmarkDecode(b, `{"value":"`+base64.StdEncoding.EncodeToString([]byte(text))+`","value_encoding":"base64","timestamp":17000%06[1]d}`)
	})
	b.Run("headers", func(b *testing.B) {
		benchmarkDecode(b, `{"value":"`+text+`","headers":[{"name":"trace","value":"%[1]d"},{"name":"b","value":"c"}]}`)
	})
	b.Run("encoding-json", func(b *testing.B) { // for scale
		body := []byte(benchBody(100, `{"value":"`+text+`%.0[1]d"}`))
		for b.Loop() {
			var req struct {
				Records []struct {
					Key, Value *string
				}
			}
			if err := json.Unmarshal(body, &req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

func BenchmarkAppendRecord(b *testing.B) {
	values := map[string]string{
		"text-100":   strings.Repeat("abcdefghij", 10),
		"json-100":   `{"date":"2001/01/13 14:56","delay":32,"distance":418,"origin":"SAN","destination":"SJC","n":1234567}`,
		"binary-100": strings.Repeat("\xff\xfeabcdefgh", 10),
	}
	for name, v := range values {
		b.Run(name, func(b *testing.B) {
			rec := &record.Record{Offset: 123456789, Timestamp: 1700000000000, Key: fmt.Append(nil, "key-1"), Value: []byte(v)}
			meta := &Meta{Topic: "flights", Partition: 3}
			dst := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendRecord(dst[:0], meta, rec, Encodings{})
			}
			b.SetBytes(int64(len(dst)))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
