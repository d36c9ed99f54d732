package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"tidewire/internal/client/clienttest"
)

func TestMovesAreAskedForAndTheRefusedOnesNamed(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	const results = `{"results":[{"topic":"a","partition":0,"leader":1,"replicas":[2,1],"adding":[2],"removing":[1],"problem":null},` +
		`{"topic":"b/c","partition":7,"leader":null,"replicas":[],"adding":[],"removing":[],"problem":{"code":"conflict","status":409,"detail":"broker 3 is not online"}}]}`
	s.Reply("POST", "/v1/reassignments", 200, results)
	sh := newShell(t, s)
	code, out, errOut := sh.run("", "reassignment", "create", "a/0=2", "b/c/7=3,1", "--throttle", "0")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "2,1")
	assert.Contains(t, errOut, "partition 7 of b/c: conflict (409): broker 3 is not online")
	for _, bad := range []string{"a", "a=1", "a/x=1", "a/0=", "a/-1=1", "/0=1"} {
		code, _, errOut := sh.run("", "reassignment", "create", bad)
		assert.Equal(t, 2, code, bad)
		assert.NotEmpty(t, errOut, bad)
	}
	code, _, _ = sh.run("", "election", "preferred", "orders")
	assert.Equal(t, 2, code)
	s.Reply("DELETE", "/v1/reassignments/b%2Fc/7", 204, "")
	assert.Equal(t, "Cancelled the move of partition 7 of b/c\n", sh.ok("", "reassignment", "cancel", "b/c/7"))
	s.Reply("POST", "/v1/elections", 200, `{"results":[]}`)
	sh.ok("", "election", "preferred")
	code, _, _ = sh.run("", "election", "unclean")
	assert.Equal(t, 2, code, "it names partitions")
}

func TestWhetherABrokerCanBeStoppedIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	sh := newShell(t, s)
	s.Reply("GET", "/v1/brokers/2/can-stop", 200, `{"safe":true,"reasons":[]}`)
	assert.Equal(t, "Broker 2 can be stopped\n", sh.ok("", "broker", "can-stop", "2"))
	s.Reply("GET", "/v1/brokers/1/can-stop", 200, `{"safe":false,"reasons":["the quorum would lose its majority"]}`)
	code, _, errOut := sh.run("", "broker", "can-stop", "1")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "majority")
	s.Reply("POST", "/v1/brokers/1/drain", 200, `{"broker":1,"state":"draining","plan":{"moves":[{"topic":"a","partition":0,"from":[1,2],"to":[3,2],"problem":null}],"copies":1},"etag":"x"}`)
	assert.Contains(t, sh.ok("", "broker", "drain", "1", "--dry-run"), "3,2")
	s.Reply("DELETE", "/v1/brokers/1", 204, "")
	assert.Equal(t, "Removed broker 1\n", sh.ok("", "broker", "remove", "1"))
}
