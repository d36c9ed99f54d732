package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"tidewire/internal/datadir"
	"tidewire/internal/fsx"
	"tidewire/storage/check"

	"github.com/spf13/cobra"
)

// checkFlags are the flags of check.
type checkFlags struct {
	format   string
	dump     bool
	inflate  int64
	expireMs int64
	o        check.Options
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use: "check DIR|FILE", Short: "Verify a stopped node's data folder, or print what it holds", Args: cobra.ExactArgs(1),
		Long: "Verify a data folder that no node has open, one partition's folder in it, or one file, without\n" +
			"changing anything. Exit code 1 tells that there is damage. --repair-indexes makes damaged or missing\n" +
			"indexes anew from the logs, which it never touches. --dump prints batches and entries instead.",
		Example: "  tidewire check --deep /var/lib/tidewire\n" +
			"  tidewire check --dump --deep /var/lib/tidewire/topics/flights-0/00000000000000000000.log",
		RunE: func(_ *cobra.Command, args []string) error { return a.check(&f, args[0]) },
	}
	formatFlag(c, &f.format)
	c.Flags().BoolVar(&f.o.Deep, "deep", false, "read every record, and compare indexes and snapshots with a replay of the log; with --dump print records")
	c.Flags().BoolVar(&f.dump, "dump", false, "print what the files hold")
	c.Flags().BoolVar(&f.o.RepairIndexes, "repair-indexes", false, "make damaged or missing indexes anew")
	c.Flags().IntVar(&f.o.IndexInterval, "index-interval", 0, "index.interval.bytes of the logs (default: inferred)")
	c.Flags().Int64Var(&f.inflate, "max-inflate", 64<<20, "bytes that one compressed batch may inflate to")
	c.Flags().Int64Var(&f.expireMs, "producer-id-expiration-ms", (24 * time.Hour).Milliseconds(), "producers idle for so long may be missing in snapshots")
	return c
}

func (a *app) check(f *checkFlags, name string) error {
	switch {
	case f.dump && f.o.RepairIndexes:
		return usagef("--dump and --repair-indexes do not go together")
	case f.o.IndexInterval < 0 || f.inflate <= 0 || f.inflate > 1<<30 || f.expireMs <= 0:
		return usagef("--index-interval, --max-inflate (at most 1 GiB) and --producer-id-expiration-ms are positive")
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if abs, err = filepath.EvalSymlinks(abs); errors.Is(err, fs.ErrNotExist) {
		return usagef("there is no %s", name)
	} else if err != nil {
		return err
	}
	held, err := datadir.Hold(dataFolderOf(abs))
	if err != nil {
		return err
	}
	defer held.Close()
	f.o.FS, f.o.Path, f.o.MaxInflate = fsx.OS(), filepath.ToSlash(abs), int(f.inflate)
	f.o.ProducerExpiration = time.Duration(f.expireMs) * time.Millisecond
	if f.dump {
		err = a.dump(f)
	} else {
		err = a.verify(f)
	}
	if errors.Is(err, check.ErrNothing) {
		return usagef("%s is no data folder, partition's folder or file of one", name)
	}
	return err
}

// dataFolderOf finds the data folder that a path in one belongs to, by its lock file.
func dataFolderOf(name string) string {
	for dir := name; ; dir = filepath.Dir(dir) {
		ok, err := fsx.Exists(fsx.OS(), filepath.Join(dir, datadir.LockName))
		if err == nil && ok {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return name
		}
	}
}

func (a *app) dump(f *checkFlags) error {
	return check.Dump(f.o, func(x *check.Item) error {
		if f.format == formatJSON {
			return a.printJSON(x)
		}
		_, err := fmt.Fprintln(a.out, printable(x.String()))
		return err
	})
}

func (a *app) verify(f *checkFlags) error {
	findings := []check.Finding{}
	sum, err := check.Run(f.o, func(x check.Finding) {
		if f.format == formatJSON {
			findings = append(findings, x)
			return
		}
		fmt.Fprintln(a.out, printable(findingLine(&x)))
	})
	if err != nil {
		return err
	}
	if f.format == formatJSON {
		err = a.printJSON(map[string]any{"findings": findings, "summary": sum})
	} else {
		_, err = fmt.Fprintf(a.out, "%d logs, %d segments, %d batches, %d records, %d bytes: %d damaged, %d notes, %d repaired\n",
			sum.Logs, sum.Segments, sum.Batches, sum.Records, sum.Bytes, sum.Damage, sum.Notes, sum.Repaired)
	}
	left := sum.Damage
	if err == nil && left > 0 && sum.Repaired > 0 {
		left, err = damageLeft(f.o)
	}
	if err == nil && left > 0 {
		err = fmt.Errorf("there is damage: %d findings", left)
	}
	return err
}

// damageLeft counts what a repair has left.
func damageLeft(o check.Options) (int64, error) {
	o.RepairIndexes = false
	sum, err := check.Run(o, func(check.Finding) {})
	return sum.Damage, err
}

func findingLine(x *check.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", x.Severity, x.File)
	if x.Position != nil {
		fmt.Fprintf(&b, " byte %d", *x.Position)
	}
	if x.Offset != nil {
		fmt.Fprintf(&b, " offset %d", *x.Offset)
	}
	fmt.Fprintf(&b, ": %s", x.What)
	return b.String()
}
