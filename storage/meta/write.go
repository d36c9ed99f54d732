package meta

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// chunk bounds the rows of one statement, well below SQLite's limit of variables.
const chunk = 200

// writer writes one transaction.
type writer struct {
	tx  *gorm.DB
	sum *checksum
}

func (w *writer) state(img *metadata.Image, applied uint64) error {
	return w.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&stateRow{
		ID: 1, FormatVersion: formatVersion, ClusterID: img.Cluster().ID,
		AppliedIndex: int64(applied), ImageIndex: int64(img.Index()), Checksum: w.sum[:],
	}).Error
}

func (w *writer) changes(old, next *metadata.Image, d metadata.Delta) error {
	if d.Cluster || d.ClusterConfig {
		if err := w.cluster(old.Cluster(), next.Cluster()); err != nil {
			return err
		}
	}
	if err := writeChanges(w, table[model.BrokerID, metadata.Broker, brokerRow]{"id", old.Broker, next.Broker, toBrokerRow}, d.Brokers); err != nil {
		return err
	}
	if err := w.topics(old, next, d.Topics); err != nil {
		return err
	}
	if err := writeChanges(w, table[string, metadata.User, userRow]{"name", old.User, next.User, toUserRow}, d.Users); err != nil {
		return err
	}
	if err := writeChanges(w, table[string, metadata.ACL, aclRow]{"id", old.ACL, next.ACL, toACLRow}, d.ACLs); err != nil {
		return err
	}
	if err := writeChanges(w, table[string, metadata.Session, sessionRow]{"id", old.Session, next.Session, toSessionRow}, d.Sessions); err != nil {
		return err
	}
	if err := writeChanges(w, table[string, metadata.APIToken, tokenRow]{"id", old.APIToken, next.APIToken, toTokenRow}, d.APITokens); err != nil {
		return err
	}
	if err := writeChanges(w, table[string, metadata.Quota, quotaRow]{"user_name", old.Quota, next.Quota, toQuotaRow}, d.Quotas); err != nil {
		return err
	}
	return writeChanges(w, table[string, metadata.SigningKey, keyRow]{"kid", old.SigningKey, next.SigningKey, toKeyRow}, d.SigningKeys)
}

// cluster writes the cluster entity; old is nil when the table is empty.
func (w *writer) cluster(old, next *metadata.Cluster) error {
	if old != nil {
		w.toggle(toClusterRow(old))
	}
	row := toClusterRow(next)
	w.toggle(row)
	return upsert(w.tx, []clusterRow{row})
}

type tabled interface{ TableName() string }

func (w *writer) toggle(row tabled) { w.sum.toggle(row.TableName(), row) }

// table is how one kind of entity is looked up in the two images and becomes rows; key is
// the column that identifies a row.
type table[K comparable, E any, R tabled] struct {
	key       string
	old, next func(K) *E
	toRow     func(*E) R
}

// writeChanges brings the rows of the changed entities to their state in the next image.
func writeChanges[K comparable, E any, R tabled](w *writer, t table[K, E, R], changes map[K]metadata.Change) error {
	var gone []K
	var rows []R
	for k := range changes {
		if e := t.old(k); e != nil {
			w.toggle(t.toRow(e))
		}
		if e := t.next(k); e != nil {
			row := t.toRow(e)
			w.toggle(row)
			rows = append(rows, row)
		} else {
			gone = append(gone, k)
		}
	}
	if err := remove[R](w.tx, t.key, gone); err != nil {
		return err
	}
	return upsert(w.tx, rows)
}

// topics writes changed topics and, of these, only the partitions that differ: a topic
// may have thousands and one change of an ISR touches one.
func (w *writer) topics(old, next *metadata.Image, changes map[model.TopicID]metadata.Change) error {
	var gone []string
	var rows []topicRow
	var parts []partitionRow
	for id := range changes {
		o, n := old.TopicByID(id), next.TopicByID(id)
		if o != nil {
			w.toggle(toTopicRow(o))
		}
		if n != nil {
			row := toTopicRow(n)
			w.toggle(row)
			rows = append(rows, row)
		} else {
			gone = append(gone, id.String())
		}
		parts = append(parts, w.partitions(id.String(), o, n)...)
	}
	// Names are unique: what is gone must go before what comes under its name.
	if err := remove[topicRow](w.tx, "id", gone); err != nil {
		return err
	}
	if err := remove[partitionRow](w.tx, "topic_id", gone); err != nil {
		return err
	}
	if err := upsert(w.tx, rows); err != nil {
		return err
	}
	return upsert(w.tx, parts)
}

// partitions settles the checksum for the partitions of one topic and returns the rows
// to write. The number of partitions never shrinks while a topic lives.
func (w *writer) partitions(id string, o, n *metadata.Topic) []partitionRow {
	var before, after []metadata.Partition
	if o != nil {
		before = o.Partitions
	}
	if n != nil {
		after = n.Partitions
	}
	var rows []partitionRow
	for i := range max(len(before), len(after)) {
		// Every change of a partition raises its epoch.
		if i < len(before) && i < len(after) && before[i].PartitionEpoch == after[i].PartitionEpoch {
			continue
		}
		if i < len(before) {
			w.toggle(toPartitionRow(id, i, &before[i]))
		}
		if i < len(after) {
			row := toPartitionRow(id, i, &after[i])
			w.toggle(row)
			rows = append(rows, row)
		}
	}
	return rows
}

func upsert[R any](tx *gorm.DB, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	return tx.Clauses(clause.OnConflict{UpdateAll: true}).CreateInBatches(&rows, chunk).Error
}

// remove deletes the rows of type R under the keys. It does not use GORM's own deletion
// by model, which leaves out rows whose key is 0.
func remove[R, K any](tx *gorm.DB, keyColumn string, keys []K) error {
	var row R
	for len(keys) > 0 {
		n := min(len(keys), chunk)
		if err := tx.Where(clause.IN{Column: keyColumn, Values: toAny(keys[:n])}).Delete(&row).Error; err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func toAny[K any](keys []K) []any {
	out := make([]any, len(keys))
	for i, k := range keys {
		out[i] = k
	}
	return out
}
