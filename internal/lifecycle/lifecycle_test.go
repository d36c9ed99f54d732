package lifecycle

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStopEndsTheContextAndWaits(t *testing.T) {
	t.Parallel()
	g := New(context.Background())
	ended := make(chan struct{})
	g.Go("worker", func(ctx context.Context) { <-ctx.Done(); close(ended) })
	if err := g.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	default:
		t.Fatal("Stop returned before the goroutine ended")
	}
	if g.Go("late", func(context.Context) { t.Error("ran after Stop") }) {
		t.Fatal("Go accepted a goroutine after Stop")
	}
}

func TestStopNamesWhoIsStillRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(context.Background())
		release := make(chan struct{})
		g.Go("stubborn", func(context.Context) { <-release })
		g.Go("polite", func(ctx context.Context) { <-ctx.Done() })
		err := g.Stop(time.Second)
		if err == nil || !strings.Contains(err.Error(), "stubborn") || strings.Contains(err.Error(), "polite") {
			t.Fatalf("want the stubborn one named alone, got %v", err)
		}
		close(release)
		if err := g.Stop(time.Second); err != nil {
			t.Fatal(err)
		}
	})
}
