package api

// groupSockets are the members of groups over WebSocket, and groups on the command line.
var groupSockets = []clause{
	{"ws consume, group", "with group the socket is a member, told its effective values and its partitions", []string{"TestAMemberIsToldItsEffectiveValuesAndItsPartitions", "TestAMemberMaySubscribeByTheQuery"}},
	{"ws consume, group", "from, also a time, is auto_offset_reset; both given is an error", []string{"TestWhatIsWrongInAFrameIsPointedAt", "TestAResumedMemberKeepsWhatItJoinedWith", "TestWithNoneTheGroupNeedsOffsets"}},
	{"ws consume, group", "assigned may be empty, and follows later", []string{"TestARevokedPartitionMovesWhenItIsReleased", "TestTheTopicsOfAMemberComeAndGo"}},
	{"ws consume, group", "revoked follows a partition's last record; commits are accepted until released or 5 s", []string{"TestARevokedPartitionMovesWhenItIsReleased", "TestARevokedPartitionMovesAfterFiveSecondsAnyhow"}},
	{"ws consume, group", "commit is answered by committed, all or nothing", []string{"TestWhatWasNotCommittedComesAgain", "TestACommitThatIsRefusedChangesNothing"}},
	{"ws consume, group", "commit gives at least once", []string{"TestWhatWasNotCommittedComesAgain"}},
	{"ws consume, group", "auto_commit commits what was written to the socket", []string{"TestAMemberMaySubscribeByTheQuery", "TestAutoCommitReleasesAtOnce", "TestAMemberOutlivesTheNodesStop"}},
	{"ws consume, group", "credit, pause, resume, seek, unsubscribe, q, q_in and preview_bytes", []string{"TestCreditPauseSeekAndSearchWorkForMembers"}},
	{"ws consume, group", "a clean close leaves the group", []string{"TestWhatWasNotCommittedComesAgain", "TestAMemberMaySubscribeByTheQuery"}},
	{"ws consume, group", "a cut one waits for the session timeout, and a new socket may resume with member_id", []string{"TestACutMemberWaitsForItsSessionAndMayGoOn", "TestASilentClientLosesItsSession"}},
	{"ws consume, group", "an instance that is taken over is fenced with 4409", []string{"TestAnInstanceIsTakenOver", "TestAResumedMemberKeepsWhatItJoinedWith", "TestAPollTakesTheMemberFromTheSocket"}},
	{"ws consume, group", "a position out of range goes by auto_offset_reset", []string{"TestAPositionOutOfRangeIsSetByThePolicy", "TestWithNoneTheGroupNeedsOffsets"}},
	{"ws consume, group", "a right that goes ends the socket with 4403, the node's stop with end and 1001", []string{"TestAMemberWhoseRightGoesEnds", "TestAMemberOutlivesTheNodesStop"}},
	{"command line, group", "list, describe, reset and delete", []string{"TestAGroupIsDescribedAsKafkasToolDoes", "TestGroupsAreListedAndTheirNamesCompleted", "TestAResetShowsWhatItWouldDoAndAsks", "TestAGroupIsDeleted"}},
	{"command line, group", "consume reads as a member and commits what it has written", []string{"TestAMemberCommitsWhatItHasWrittenAndLeaves", "TestWhatCouldNotBeWrittenIsNotCommitted", "TestAnExpiredMemberJoinsAgain"}},
}
