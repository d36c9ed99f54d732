// Package record is the codec of Apache Kafka's RecordBatch v2 (magic 2), the
// one form in which records are stored, replicated and handed to binary clients.
package record
