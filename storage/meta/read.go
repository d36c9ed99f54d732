package meta

import (
	"fmt"

	"gorm.io/gorm"

	"tidewire/cluster/metadata"
)

// reader reads every row and sums them up.
type reader struct {
	db  *gorm.DB
	sum checksum
}

func (r *reader) contents() (metadata.Contents, error) {
	var c metadata.Contents
	clusters, err := readAll(r, "id", clusterRow.entity)
	if err != nil {
		return c, err
	}
	if len(clusters) != 1 {
		return c, fmt.Errorf("table cluster has %d rows", len(clusters))
	}
	c.Cluster = clusters[0]
	if c.Brokers, err = readAll(r, "id", brokerRow.entity); err != nil {
		return c, err
	}
	if c.Topics, err = r.topics(); err != nil {
		return c, err
	}
	if c.Users, err = readAll(r, "name", userRow.entity); err != nil {
		return c, err
	}
	if c.ACLs, err = readAll(r, "id", aclRow.entity); err != nil {
		return c, err
	}
	if c.Sessions, err = readAll(r, "id", sessionRow.entity); err != nil {
		return c, err
	}
	if c.APITokens, err = readAll(r, "id", tokenRow.entity); err != nil {
		return c, err
	}
	if c.Quotas, err = readAll(r, "user_name", quotaRow.entity); err != nil {
		return c, err
	}
	c.SigningKeys, err = readAll(r, "kid", keyRow.entity)
	return c, err
}

func readAll[R tabled, E any](r *reader, order string, entity func(R) (*E, error)) ([]*E, error) {
	var rows []R
	if err := r.db.Order(order).Find(&rows).Error; err != nil {
		return nil, err
	}
	out := make([]*E, 0, len(rows))
	for _, row := range rows {
		r.sum.toggle(row.TableName(), row)
		e, err := entity(row)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", row.TableName(), err)
		}
		out = append(out, e)
	}
	return out, nil
}

// topics reads topics with their partitions, which must be numbered without gaps.
func (r *reader) topics() ([]*metadata.Topic, error) {
	topics, err := readAll(r, "id", topicRow.entity)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*metadata.Topic, len(topics))
	for _, t := range topics {
		byID[t.ID.String()] = t
	}
	_, err = readAll(r, "topic_id, partition", func(row partitionRow) (*metadata.Partition, error) {
		t := byID[row.TopicID]
		if t == nil || int(row.Partition) != len(t.Partitions) {
			return nil, fmt.Errorf("partition %d of topic %s is out of place", row.Partition, row.TopicID)
		}
		p, err := row.entity()
		if err != nil {
			return nil, err
		}
		t.Partitions = append(t.Partitions, *p)
		return p, nil
	})
	return topics, err
}
