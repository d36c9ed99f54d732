package check

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// folder is what the checkpoints of a data folder say.
type folder struct {
	dir   string
	cp    [len(checkpointFiles)]checkpoint
	have  [len(checkpointFiles)]bool // there and whole
	clean bool                       // the last stop was a clean one
}

// get is a checkpoint's entry of a log.
func (f *folder) get(kind int, k logKey) (model.Offset, bool) {
	if f == nil || !f.have[kind] {
		return 0, false
	}
	return f.cp[kind].get(k)
}

// dataFolder checks a data folder, or only one of its files.
func (c *checker) dataFolder(dir, only string) error {
	names, err := c.partitionsOf(dir)
	if err != nil {
		return err
	}
	f, err := c.loadFolder(dir, len(names) > 0)
	if err != nil || only != "" {
		return err
	}
	if err := c.leftInFolder(dir); err != nil {
		return err
	}
	ids, seen := map[string]model.TopicID{}, map[logKey]bool{}
	for _, name := range names {
		p := &partition{c: c, dir: path.Join(dir, topicsDir, name), name: name, folder: f}
		if err := p.run(); err != nil {
			return err
		}
		topic, _, _ := cutPartition(name)
		if !p.haveID {
			continue
		}
		if id, ok := ids[topic]; ok && id != p.key.id {
			c.report(Damage, path.Join(p.dir, metadataFile), nowhere, "the topic id %s is not that of the topic's other partitions, %s", p.key.id, id)
		}
		ids[topic], seen[p.key] = p.key.id, true
	}
	c.lostLogs(f, seen)
	return nil
}

// partitionsOf lists the partitions' folders.
func (c *checker) partitionsOf(dir string) ([]string, error) {
	entries, err := c.fs.ReadDir(path.Join(dir, topicsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name := path.Join(dir, topicsDir, e.Name)
		if _, _, ok := cutPartition(e.Name); !ok || !e.Dir {
			c.report(Note, name, nowhere, "it belongs to no partition")
			continue
		}
		out = append(out, e.Name)
	}
	return out, nil
}

// cutPartition splits the name of a partition's folder.
func cutPartition(name string) (topic string, p model.PartitionID, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 || model.CheckTopicName(name[:i]) != "" {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[i+1:], 10, 31)
	return name[:i], model.PartitionID(n), err == nil
}

// loadFolder reads the checkpoints and the marker of a clean stop.
func (c *checker) loadFolder(dir string, logs bool) (*folder, error) {
	f := &folder{dir: dir}
	for i, kind := range checkpointFiles {
		name := path.Join(dir, kind)
		b, have, err := c.read(name)
		if err != nil {
			return nil, err
		}
		if !have {
			if logs && i != cpCleaner {
				c.report(Damage, name, nowhere, "the checkpoint is missing, although there are logs")
			}
			continue
		}
		if f.cp[i], err = decodeCheckpoint(b, kind); err != nil {
			c.report(Damage, name, nowhere, "the checkpoint is damaged: %v", err)
			continue
		}
		f.have[i] = true
	}
	name := path.Join(dir, cleanStopFile)
	b, have, err := c.read(name)
	if err != nil || !have {
		return f, err
	}
	gens, err := decodeCleanStop(b)
	if err != nil {
		c.report(Damage, name, nowhere, "the marker of a clean stop is damaged: %v", err)
		return f, nil
	}
	f.clean, c.sum.CleanStop = true, true
	for i, g := range gens {
		if i == cpCleaner && !f.have[i] && g > 0 {
			c.report(Damage, path.Join(dir, cleanerFile), nowhere, "the checkpoint is missing or damaged; the last stop left it at generation %d", g)
		}
		if f.have[i] && f.cp[i].generation != g {
			c.report(Damage, path.Join(dir, checkpointFiles[i]), nowhere, "the checkpoint has generation %d, and the last stop left %d", f.cp[i].generation, g)
		}
	}
	return f, nil
}

// leftInFolder lists what operations have left.
func (c *checker) leftInFolder(dir string) error {
	entries, err := c.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Dir && isLeftOver(e.Name) {
			c.report(Note, path.Join(dir, e.Name), nowhere, "left over")
		}
	}
	entries, err = c.fs.ReadDir(path.Join(dir, trashDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		c.report(Note, path.Join(dir, trashDir, e.Name), nowhere, "a removed folder that is about to be deleted")
	}
	return nil
}

// lostLogs looks for entries of logs that are not there. A topic that was deleted while the
// node was down may have left its entries, so a log is lost for sure only where others of
// its topic are there.
func (c *checker) lostLogs(f *folder, seen map[logKey]bool) {
	topics := map[model.TopicID]bool{}
	for k := range seen {
		topics[k.id] = true
	}
	name := path.Join(f.dir, recoveryPointFile)
	for _, x := range f.cp[cpRecovery].points {
		if seen[x.key] {
			continue
		}
		sev := Note
		if topics[x.key.id] && x.off > 0 {
			sev = Damage
		}
		c.report(sev, name, at{-1, x.off}, "partition %d of topic %s has an entry and no folder", x.key.p, x.key.id)
	}
}

// onePartition checks a partition's folder by itself, with the checkpoints where it lies in
// a data folder.
func (c *checker) onePartition(dir string) error {
	p := &partition{c: c, dir: dir, name: path.Base(dir)}
	if up := path.Dir(dir); path.Base(up) == topicsDir {
		data := path.Dir(up)
		ok, err := fsx.Exists(c.fs, path.Join(data, recoveryPointFile))
		if err != nil {
			return err
		}
		if ok {
			quiet := newChecker(c.o, func(Finding) {})
			if p.folder, err = quiet.loadFolder(data, true); err != nil {
				return err
			}
			c.sum.CleanStop = p.folder.clean
		}
	}
	return p.run()
}
